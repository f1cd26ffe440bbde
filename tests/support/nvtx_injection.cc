// A tool for NVTX to load (NVTX_INJECTION64_PATH): prints what it is told, one line per call, each
// starting with "nvtx" and the number of the calling thread.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
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

thread_local int depth = 0;

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const bool as_expected = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED &&
                           event->payloadType == NVTX_PAYLOAD_TYPE_INT64;
  tell("push " + text_of(domain) + " " + std::to_string(event->category) + " " +
       (as_expected
            ? std::to_string(event->payload.llValue) + " " + text_of(event->message.registered)
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
