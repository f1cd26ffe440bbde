#include "bench/coll/background.h"

#include <algorithm>
#include <utility>

#include "parallel/device/device.h"

namespace mb {
namespace {

constexpr double kRunNs = 1e6;

std::int64_t bytes_for(const CollCall& call, std::int64_t elements) {
  return elements * size_of(call.type);
}

}  // namespace

Background::Background(std::unique_ptr<Comm> comm, const CollCall& call, PageSize pages,
                       const Cores& cores)
    : comm_(std::move(comm)),
      call_(call),
      cores_(cores),
      in_(bytes_for(call, elements_in(call, comm_->index())), pages),
      out_(bytes_for(call, elements_out(call, comm_->index())), pages) {
  in_.prefault();
  out_.prefault();
}

Background::~Background() {
  leave_ = true;
  if (thread_.joinable()) thread_.join();
}

void Background::start() {
  leave_ = false;
  runs_ = 0;
  thread_ = std::thread([this] { run(); });
  runs_.wait(0);
  if (failed_) stop();
}

void Background::stop() {
  leave_ = true;
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Background::run() {
  cores_.take_all();
  try {
    const Operands o = operands(call_, comm_->index(), false, in_.data(), out_.data());
    for (std::int64_t order[2] = {1, 1}; order[0] != 0;) {
      const std::int64_t start = now_ns();
      for (std::int64_t i = 0; i < order[1]; ++i) issue(*comm_, call_, o);
      const auto each_ns = static_cast<double>(now_ns() - start) / static_cast<double>(order[1]);
      runs_.fetch_add(1);
      runs_.notify_all();
      if (comm_->index() == 0) {
        order[0] = leave_ ? 0 : 1;
        order[1] = static_cast<std::int64_t>(std::clamp(kRunNs / std::max(each_ns, 1.0), 1.0, 1e4));
      }
      comm_->broadcast(order, 2, DType::int64, 0);
    }
  } catch (...) {
    error_ = std::current_exception();
    failed_ = true;
    runs_.fetch_add(1);
    runs_.notify_all();
  }
}

}  // namespace mb
