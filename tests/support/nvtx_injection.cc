// A tool for NVTX to load (NVTX_INJECTION64_PATH): prints what it is told, one line per call, each
// starting with "nvtx" and the number of the calling thread.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// Handles are the addresses of what they name, and never freed.
std::string& text_of(const void* handle) {
  return *static_cast<std::string*>(const_cast<void*>(handle));
}

int this_thread() {
  static std::atomic<int> threads{0};
  thread_local const int number = threads++;
  return number;
}

// One write per line, so that lines of threads do not mix.
void tell(const std::string& line) {
  const std::string whole = "nvtx " + std::to_string(this_thread()) + " " + line + "\n";
  if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::perror("nvtx_injection");
}

nvtxDomainHandle_t domain_create(const char* name) {
  tell(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  tell(std::string("string ") + text);
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}

void name_category(nvtxDomainHandle_t, uint32_t category, const char* name) {
  tell("category " + std::to_string(category) + " " + name);
}

constexpr std::uint64_t kSchema = 77;

uint64_t register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t* schema) {
  std::string text =
      "schema " + std::string(schema->name) + " " + std::to_string(schema->payloadStaticSize) + ":";
  for (size_t i = 0; i < schema->numEntries; ++i)
    text += std::string(" ") + schema->entries[i].name + "@" +
            std::to_string(schema->entries[i].offset);
  tell(text);
  return kSchema;
}

// The 64-bit fields of a payload, "3,-1,4096".
std::string fields_of(const nvtxEventAttributes_t* event) {
  const auto* data =
      reinterpret_cast<const nvtxPayloadData_t*>(static_cast<uintptr_t>(event->payload.ullValue));
  if (event->payloadType != NVTX_PAYLOAD_TYPE_EXT || event->reserved0 != 1 ||
      data->schemaId != kSchema)
    return "?";
  std::string text;
  for (size_t at = 0; at < data->size; at += sizeof(int64_t)) {
    int64_t field = 0;
    std::memcpy(&field, static_cast<const char*>(data->payload) + at, sizeof field);
    text += (at ? "," : "") + std::to_string(field);
  }
  return text;
}

// Without the extension, one number.
std::string payload_of(const nvtxEventAttributes_t* event) {
  return event->payloadType == NVTX_PAYLOAD_TYPE_INT64 ? std::to_string(event->payload.llValue)
                                                       : fields_of(event);
}

thread_local int depth = 0;

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  tell("push " + text_of(domain) + " " + std::to_string(event->category) + " " + payload_of(event) +
       " " +
       (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? text_of(event->message.registered)
                                                           : "?"));
  return depth++;
}

int pop(nvtxDomainHandle_t domain) {
  tell("pop " + text_of(domain));
  return --depth;
}

template <class Function>
void set(NvtxFunctionTable table, NvtxCallbackIdCore2 slot, Function function) {
  *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int slots = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &slots) ||
      slots <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  set(table, NVTX_CBID_CORE2_DomainCreateA, domain_create);
  set(table, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(table, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

// The extension of payloads, unless the test is to be of a tool that does not know it.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || std::getenv("MB_NVTX_WITHOUT_PAYLOADS"))
    return 0;
  module->segments->functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<intptr_t>(register_schema);
  return 1;
}
