#include "tests/support/cuda_emulation/nccl_processes.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "parallel/comm/launcher.h"
#include "workloads/base/error.h"

namespace mb::cuda_emulation {
namespace {

// What this process has posted and not taken back yet. At its end nobody reads it any more, as
// launched processes end together.
class Posted {
 public:
  ~Posted() {
    for (const std::string& name : names_) std::filesystem::remove(path_of(name), ignored_);
  }
  void add(const std::string& name, const std::string& text) {
    const std::string path = path_of(name), partial = cat(path, " partial");
    std::ofstream(partial, std::ios::binary).write(text.data(), std::ssize(text));
    std::filesystem::rename(partial, path);  // there as a whole or not at all
    names_.insert(name);
  }
  void take_back(const std::string& name) {
    std::filesystem::remove(path_of(name), ignored_);
    names_.erase(name);
  }
  static std::optional<std::string> read(const std::string& name) {
    std::ifstream in(path_of(name), std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  static std::string path_of(const std::string& name) {
    return std::filesystem::temp_directory_path() / name;
  }
  std::set<std::string> names_;
  std::error_code ignored_;
};
Posted& posted() {
  static Posted all;
  return all;
}

std::string member_name(const NcclClique& clique, int member) {
  return cat(clique.name, " member ", member);
}
std::string part_name(const NcclClique& clique, std::int64_t ordinal, int member) {
  return cat(clique.name, " split ", ordinal, " of ", member);
}
std::string data_name(const NcclClique& clique, std::int64_t ordinal, int member) {
  return cat(clique.name, " collective ", ordinal, " of ", member);
}
std::string message_name(const NcclClique& clique, int from, int to, std::int64_t ordinal) {
  return cat(clique.name, " message ", ordinal, " from ", from, " to ", to);
}

// What `name` holds, once it is there; none where the kernel is given up before.
std::optional<std::string> wait_for(const std::string& name, const NcclKernel& kernel,
                                    std::unique_lock<std::mutex>& lock) {
  while (true) {
    if (kernel.clique->members[static_cast<std::size_t>(kernel.member)].aborted ||
        kernel.clique->error != ncclSuccess)
      return std::nullopt;
    lock.unlock();
    std::optional<std::string> text = Posted::read(name);
    if (!text) std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
    if (text) return text;
  }
}

std::string bytes_at(const void* data, std::size_t bytes) {
  return bytes ? std::string(static_cast<const char*>(data), bytes) : std::string();
}

std::string send_or_receive(const NcclKernel& kernel, const NcclOperation& operation,
                            std::unique_lock<std::mutex>& lock) {
  const NcclClique& clique = *kernel.clique;
  const std::size_t bytes = bytes_of(operation);
  if (operation.kind == NcclKind::send) {
    posted().add(message_name(clique, kernel.member, operation.root, operation.ordinal),
                 bytes_at(operation.from, bytes));
    return "";
  }
  const std::string name = message_name(clique, operation.root, kernel.member, operation.ordinal);
  const auto data = wait_for(name, kernel, lock);
  if (!data) return "";
  posted().take_back(name);
  if (data->size() != bytes) return cat(data->size(), " bytes meet ", text_of(operation));
  if (bytes) std::memcpy(operation.to, data->data(), bytes);
  return "";
}

}  // namespace

bool spans_processes() {
  static const bool several = launcher() && launcher()->size > 1;
  return several;
}

void post_member(const NcclClique& clique, int member, int device) {
  posted().add(member_name(clique, member), cat(device));
}

void post_part(const NcclClique& clique, std::int64_t ordinal, int member,
               const NcclSplit::Part& part) {
  posted().add(part_name(clique, ordinal, member), cat(part.color, ' ', part.key));
}

bool find_members(NcclClique& clique) {
  for (std::size_t m = 0; m < clique.members.size(); ++m) {
    NcclMember& member = clique.members[m];
    if (member.joined) continue;
    const auto text = Posted::read(member_name(clique, static_cast<int>(m)));
    if (!text) return false;
    member.device = std::stoi(*text);
    member.joined = true;
  }
  return true;
}

bool find_parts(const NcclClique& clique, std::int64_t ordinal, NcclSplit& split) {
  for (int m = 0; m < static_cast<int>(clique.members.size()); ++m) {
    if (split.parts.contains(m)) continue;
    const auto text = Posted::read(part_name(clique, ordinal, m));
    if (!text) return false;
    NcclSplit::Part part;
    std::sscanf(text->c_str(), "%d %d", &part.color, &part.key);
    split.parts.emplace(m, part);
  }
  return true;
}

std::string meet_processes(const NcclKernel& kernel, const NcclOperation& operation,
                           std::unique_lock<std::mutex>& lock) {
  if (operation.is_message()) {
    // All that goes out first, so that no two wait for each other.
    std::string wrong;
    for (const NcclKind kind : {NcclKind::send, NcclKind::recv}) {
      for (const NcclOperation& each : kernel.operations) {
        if (each.kind == kind && wrong.empty()) wrong = send_or_receive(kernel, each, lock);
      }
    }
    return wrong;
  }
  const NcclClique& clique = *kernel.clique;
  const std::size_t most = bytes_of(operation) * clique.members.size();
  const std::string own_text = text_of(operation);
  posted().add(data_name(clique, operation.ordinal, kernel.member),
               cat(own_text, '\n', bytes_at(operation.from, bytes_read(kernel, operation))));
  std::vector<std::string> data(clique.members.size()), results(clique.members.size());
  std::map<int, NcclOperation> all;
  for (int m = 0; m < static_cast<int>(clique.members.size()); ++m) {
    NcclOperation& other = all[m] = operation;
    if (m == kernel.member) continue;
    auto text = wait_for(data_name(clique, operation.ordinal, m), kernel, lock);
    if (!text) return "";
    const std::size_t end = text->find('\n');
    if (text->substr(0, end) != own_text)
      return cat(text->substr(0, end), " meets ", own_text, ", member ", m, " and member ",
                 kernel.member);
    data[m] = text->substr(end + 1);
    results[m].resize(most);
    other.from = data[m].data();
    other.to = results[m].data();
  }
  carry_out(all);
  // Whoever has come here has had what was before.
  posted().take_back(data_name(clique, operation.ordinal - 1, kernel.member));
  return "";
}

}  // namespace mb::cuda_emulation
