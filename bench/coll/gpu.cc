#include "bench/coll/gpu.h"

#include <algorithm>
#include <array>

namespace mb {

CollGpu::CollGpu(const DeviceMaker& make_device, World& world, int rank,
                 const std::vector<World::GroupName>& groups, std::int64_t bytes)
    : world_(world), rank_(rank), device_(make_device(rank)) {
  device_data_ = static_cast<std::byte*>(
      device_->allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  if (world.enqueues()) {
    world.announce(device_->native(0), groups, rank);
  } else {
    staging_.emplace(*device_, 0);
    staging_->reserve(bytes + 2 * Staging::room_of(1));
  }
}

std::unique_ptr<Comm> CollGpu::comm(const std::string& name, const std::vector<int>& members) {
  if (!world_.enqueues()) return nullptr;
  return world_.comm_on(device_->native(0), name, members, rank_);
}

void CollGpu::put(const void* host, std::int64_t bytes) {
  device_->copy_to_device(twin(host), host, static_cast<std::size_t>(bytes));
}
void CollGpu::get(void* host, std::int64_t bytes) {
  device_->copy_to_host(host, twin(host), static_cast<std::size_t>(bytes));
}

void CollGpu::ready() { device_->begin_step(true); }

void CollGpu::enqueue(Comm& comm, const CollCall& call, const Operands& on_device) {
  if (!staging_) return issue(comm, call, on_device);
  std::array<Operand, 1> in{
      Operand{const_cast<void*>(on_device.from), elements_in(call, comm.index()), call.type}};
  std::array<Operand, 1> out{Operand{on_device.to, elements_out(call, comm.index()), call.type}};
  staging_->bring(in, out, false);
  issue(comm, call, {in[0].data, out[0].data});
  staging_->take_back();
}

CollGpu::Times CollGpu::run(Comm& comm, const CollCall& call, const Operands& operands) {
  const Operands on_device{twin(operands.from), twin(operands.to)};
  std::vector<Span> spans(1);
  device_->submit(0, [&] {
    spans[0].start_ns = device_->mark(0);
    enqueue(comm, call, on_device);
    spans[0].end_ns = device_->mark(0);
  });
  const std::int64_t submitted_ns = now_ns();
  device_->synchronize();
  device_->resolve(spans);
  return {spans[0], submitted_ns};
}

}  // namespace mb
