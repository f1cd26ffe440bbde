// Reference values and backends for tests of operations.
#include "tests/support/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "workloads/base/error.h"

namespace mb::testing {
namespace {

template <class T>
Bytes encode_as(const std::vector<double>& values) {
  Bytes bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <class T>
std::vector<double> decode_as(const Bytes& bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = value;
  }
  return values;
}

DType type_of(const Operand& operand, DType dtype) {
  switch (operand.element) {
    case Element::same:
      return dtype;
    case Element::main:
      return main_dtype(dtype);
    case Element::int32:
      return DType::int32;
    default:
      return DType::fp64;
  }
}

Bytes encode(const std::vector<double>& values, DType type) {
  switch (type) {
    case DType::int32:
      return encode_as<std::int32_t>(values);
    case DType::fp32:
      return encode_as<float>(values);
    case DType::bf16:
      return encode_as<Bf16>(values);
    case DType::fp16:
      return encode_as<Fp16>(values);
    default:
      return encode_as<double>(values);
  }
}

std::vector<double> decode(const Bytes& bytes, DType type) {
  switch (type) {
    case DType::int32:
      return decode_as<std::int32_t>(bytes);
    case DType::fp32:
      return decode_as<float>(bytes);
    case DType::bf16:
      return decode_as<Bf16>(bytes);
    case DType::fp16:
      return decode_as<Fp16>(bytes);
    default:
      return decode_as<double>(bytes);
  }
}

Case parse_case(std::istringstream& line) {
  Case result;
  line >> result.name;
  for (std::string pair; line >> pair;) {
    const auto equals = pair.find('=');
    result.sizes[pair.substr(0, equals)] = std::stoll(pair.substr(equals + 1));
  }
  return result;
}

}  // namespace

std::vector<double> noise(std::uint32_t seed, std::int64_t count, double scale) {
  std::vector<double> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t z = static_cast<std::uint32_t>(i) * 2654435761u + seed * 40503u + 12345u;
    z = (z ^ (z >> 16)) * 0x45d9f3bu;
    z = (z ^ (z >> 16)) * 0x45d9f3bu;
    z ^= z >> 16;
    values[i] = scale * (z / 2147483648.0 - 1);
  }
  return values;
}

std::vector<Case> load_cases(const std::string& file, const std::string& name) {
  std::ifstream in(std::string(MB_REFERENCE_DIR "/") + file);
  std::vector<Case> cases;
  for (std::string text; std::getline(in, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "case") {
      cases.push_back(parse_case(line));
    } else {
      line >> word;
      auto& values = cases.back().tensors[word];
      for (double value; line >> value;) values.push_back(value);
    }
  }
  std::erase_if(cases, [&](const Case& c) { return c.name != name; });
  require(!cases.empty(), file, " has no case ", name);
  return cases;
}

std::vector<Backend> half_backends() {
  std::vector<Backend> result;
  for (const Backend& backend : backends()) {
    if (backend.dtype != DType::fp32) continue;
    result.push_back({backend.kernels, backend.onednn, DType::bf16});
    result.push_back({backend.kernels, backend.onednn, DType::fp16});
  }
  return result;
}

Operand indices(std::vector<double> values) { return {std::move(values), Element::int32}; }
Operand scalars(std::vector<double> values) { return {std::move(values), Element::fp64}; }
Operand with_loss_scale(double loss_scale) { return scalars({0, 0, 0, 0, loss_scale, 0, 0}); }
Operand in_main(Operand operand) { return {std::move(operand.values), Element::main}; }
Operand zeros(std::int64_t count) { return {std::vector<double>(count)}; }
Operand garbage(std::int64_t count) {
  return {std::vector<double>(count, std::numeric_limits<double>::quiet_NaN())};
}

std::vector<std::vector<double>> run_on(const Backend& backend, const OpKind& kind,
                                        const OpContext& context, const std::vector<Operand>& reads,
                                        const std::vector<Operand>& writes) {
  std::vector<Bytes> in, out;
  const auto bytes_of = [&](const Operand& operand) {
    return encode(operand.values, type_of(operand, backend.dtype));
  };
  for (const Operand& operand : reads) in.push_back(bytes_of(operand));
  for (const Operand& operand : writes) out.push_back(bytes_of(operand));
  run_operation(backend, {kind, backend.dtype}, context, in, out);
  std::vector<std::vector<double>> results;
  for (std::size_t i = 0; i < out.size(); ++i) {
    results.push_back(decode(out[i], type_of(writes[i], backend.dtype)));
  }
  return results;
}

std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  return decode(encode(values, dtype), dtype);
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                  double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    // Written so that a NaN fails.
    const double error = std::abs(actual[i] - expected[i]);
    const bool close = error <= tolerance * std::max(1.0, std::abs(expected[i]));
    ASSERT_TRUE(close) << what << "[" << i << "] is " << actual[i] << ", not " << expected[i];
  }
}

double tolerance(const Backend& backend, double factor) {
  return factor * (backend.dtype == DType::fp64 ? 1e-11 : 1e-5);
}

}  // namespace mb::testing
