// How kernels of any device reach the operands of a call.
#pragma once

namespace mb {
namespace {

// Operand `index`, of the element type U.
template <class U, class Call>
const U* in(const Call& call, int index) {
  return static_cast<const U*>(call.reads[index]);
}
template <class U, class Call>
U* out(const Call& call, int index) {
  return static_cast<U*>(call.writes[index]);
}

}  // namespace
}  // namespace mb
