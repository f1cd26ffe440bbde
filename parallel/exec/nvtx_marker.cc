// Markers as NVTX ranges (https://nvidia.github.io/NVTX/): registered strings, one category a pass,
// and a payload whose fields a tool may show and sort by.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>

#include "parallel/exec/marker.h"

namespace mb {
namespace {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

template <class Value>
using ByText = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

// The value of `text` in `known`, made by make(const char*) where it is new.
template <class Value, class Make>
Value intern(ByText<Value>& known, std::string_view text, Make make) {
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  const std::string owned(text);
  return known.emplace(owned, make(owned.c_str())).first->second;
}

struct Payload {
  std::int64_t micro_batch, layer, bytes;
};

// 0 where the tool does not know payloads.
std::uint64_t register_payload(nvtxDomainHandle_t domain) {
  if (!domain) return 0;
  const nvtxPayloadSchemaEntry_t entries[] = {
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
       .name = "micro-batch",
       .offset = offsetof(Payload, micro_batch)},
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_INT64, .name = "layer", .offset = offsetof(Payload, layer)},
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_INT64, .name = "bytes", .offset = offsetof(Payload, bytes)}};
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = "instruction";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = sizeof entries / sizeof *entries;
  schema.payloadStaticSize = sizeof(Payload);
  return nvtxPayloadSchemaRegister(domain, &schema);
}

// Our domain, null where no tool is attached, and the strings that the tool knows already.
class Domain {
 public:
  nvtxDomainHandle_t handle() const { return handle_; }
  std::uint64_t schema() const { return schema_; }

  nvtxStringHandle_t message(std::string_view text) {
    std::lock_guard lock(mutex_);
    return intern(messages_, text,
                  [&](const char* message) { return nvtxDomainRegisterStringA(handle_, message); });
  }

  std::uint32_t category(std::string_view text) {
    std::lock_guard lock(mutex_);
    return intern(categories_, text, [&](const char* name) {
      const auto id = static_cast<std::uint32_t>(categories_.size() + 1);
      nvtxDomainNameCategoryA(handle_, id, name);
      return id;
    });
  }

 private:
  const nvtxDomainHandle_t handle_ = nvtxDomainCreateA("meshbench");
  const std::uint64_t schema_ = register_payload(handle_);
  std::mutex mutex_;
  ByText<nvtxStringHandle_t> messages_;
  ByText<std::uint32_t> categories_;
};

// Never destroyed: threads may still mark while the process ends.
Domain& domain() {
  static Domain* const instance = new Domain;
  return *instance;
}

}  // namespace

bool nvtx_available() { return true; }
bool markers_active() { return domain().handle() != nullptr; }

void marker_push(const MarkerInfo& info) {
  if (!markers_active()) return;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.category = domain().category(info.category);
  const Payload payload = {info.micro_batch, info.layer, info.bytes};
  const nvtxPayloadData_t data = {domain().schema(), sizeof payload, &payload};
  if (domain().schema() != 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    event.reserved0 = 1;  // so many payloads
    event.payload.ullValue = reinterpret_cast<std::uintptr_t>(&data);
  } else {
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = info.bytes > 0 ? info.bytes : info.micro_batch;
  }
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = domain().message(info.message);
  nvtxDomainRangePushEx(domain().handle(), &event);
}

void marker_pop() {
  if (markers_active()) nvtxDomainRangePop(domain().handle());
}

}  // namespace mb
