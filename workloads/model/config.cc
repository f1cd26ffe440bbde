#include "workloads/model/config.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

using Member = std::variant<std::string ModelConfig::*, std::int64_t ModelConfig::*,
                            float ModelConfig::*, double ModelConfig::*, bool ModelConfig::*,
                            Arch ModelConfig::*, NormPlace ModelConfig::*>;
struct Field {
  std::string_view name;
  Member member;
  bool may_be_zero = false;
};

// The order of to_json.
const std::vector<Field>& fields() {
  static const std::vector<Field> table = {
      {"name", &ModelConfig::name},
      {"arch", &ModelConfig::arch},
      {"layers", &ModelConfig::layers},
      {"hidden", &ModelConfig::hidden},
      {"heads", &ModelConfig::heads},
      {"kv_heads", &ModelConfig::kv_heads},
      {"head_dim", &ModelConfig::head_dim},
      {"ffn", &ModelConfig::ffn},
      {"vocabulary", &ModelConfig::vocabulary},
      {"sequence", &ModelConfig::sequence},
      {"experts", &ModelConfig::experts},
      {"experts_per_token", &ModelConfig::experts_per_token},
      {"capacity_factor", &ModelConfig::capacity_factor, true},
      {"balance_coefficient", &ModelConfig::balance_coefficient, true},
      {"norm", &ModelConfig::norm},
      {"tied", &ModelConfig::tied},
      {"norm_epsilon", &ModelConfig::norm_epsilon},
      {"rotary_base", &ModelConfig::rotary_base},
      {"init_std", &ModelConfig::init_std},
      {"vocabulary_multiple", &ModelConfig::vocabulary_multiple},
  };
  return table;
}

const Field& find_field(std::string_view name) {
  return find_named(fields(), name, cat("model.", name), [](const Field& f) { return f.name; });
}

double positive(std::string_view text, const std::string& subject) {
  const double value = parse_number(text, subject);
  require(value > 0, subject, "=", text, ": give a number above 0");
  return value;
}

// Assigns `text` to a member of any of the types.
struct Assign {
  ModelConfig& model;
  std::string_view text;
  const std::string& subject;
  bool may_be_zero;

  void operator()(std::string ModelConfig::*member) const { model.*member = text; }
  void operator()(std::int64_t ModelConfig::*member) const {
    const std::int64_t value = parse_integer(text, subject);
    require(value >= 1, subject, "=", text, ": give a whole number of at least 1");
    model.*member = value;
  }
  void operator()(float ModelConfig::*member) const {
    const float value = static_cast<float>(positive(text, subject));
    require(value > 0 && value <= 3e38f, subject, "=", text, ": outside the range of fp32");
    model.*member = value;
  }
  void operator()(double ModelConfig::*member) const {
    if (may_be_zero && parse_number(text, subject) == 0) {
      model.*member = 0;
    } else {
      model.*member = positive(text, subject);
    }
  }
  void operator()(bool ModelConfig::*member) const { model.*member = parse_bool(text, subject); }
  void operator()(Arch ModelConfig::*member) const {
    require(text == "gpt" || text == "llama", subject, "=", text, ": give gpt or llama");
    model.*member = text == "gpt" ? Arch::gpt : Arch::llama;
  }
  void operator()(NormPlace ModelConfig::*member) const {
    require(text == "pre" || text == "post", subject, "=", text, ": give pre or post");
    model.*member = text == "pre" ? NormPlace::pre : NormPlace::post;
  }
};

using Json = nlohmann::ordered_json;

Json json_of(const std::string& value) { return value; }
Json json_of(std::int64_t value) { return value; }
Json json_of(double value) { return value; }
Json json_of(bool value) { return value; }
Json json_of(Arch value) { return name_of(value); }
Json json_of(NormPlace value) { return name_of(value); }
// The double with the shortest digits that name this float: 1e-05, not 9.99999974737875e-06.
Json json_of(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double shortest = value;
  std::from_chars(text, written.ptr, shortest);
  return shortest;
}

std::int64_t quotient(std::int64_t hidden, std::int64_t heads) {
  return heads > 0 ? hidden / heads : 0;
}

// Gives fields that are still 0 their usual value.
void fill_usual(ModelConfig& model) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) model.head_dim = quotient(model.hidden, model.heads);
  if (model.ffn == 0 && model.arch == Arch::gpt) model.ffn = 4 * model.hidden;
}

}  // namespace

std::string_view name_of(Arch arch) { return arch == Arch::gpt ? "gpt" : "llama"; }
std::string_view name_of(NormPlace place) { return place == NormPlace::pre ? "pre" : "post"; }

ModelConfig find_model(std::string_view name) {
  return find_named(published_models(), name, cat("model=", name),
                    [](const ModelConfig& m) -> std::string_view { return m.name; });
}

void set_field(ModelConfig& model, std::string_view field, std::string_view value) {
  constexpr std::string_view kPrefix = "model.";
  if (field.starts_with(kPrefix)) field.remove_prefix(kPrefix.size());
  const Field& found = find_field(field);

  const bool usual_kv_heads = model.kv_heads == model.heads && field != "kv_heads";
  const bool usual_head_dim =
      model.head_dim == quotient(model.hidden, model.heads) && field != "head_dim";
  const bool usual_ffn = model.arch == Arch::gpt && model.ffn == 4 * model.hidden && field != "ffn";
  std::visit(Assign{model, value, cat(kPrefix, field), found.may_be_zero}, found.member);
  if (usual_kv_heads) model.kv_heads = model.heads;
  if (usual_head_dim) model.head_dim = quotient(model.hidden, model.heads);
  if (usual_ffn) model.ffn = 4 * model.hidden;
}

// Labels of a plan count layers in 16 bits; sizes stay far from where their products overflow.
constexpr std::int64_t kMostLayers = 32'767, kMostSize = std::int64_t{1} << 28;

void check_model(const ModelConfig& model) {
  for (const Field& field : fields()) {
    const auto* member = std::get_if<std::int64_t ModelConfig::*>(&field.member);
    if (!member) continue;
    const std::int64_t most = field.name == "layers" ? kMostLayers : kMostSize;
    require(model.**member >= 1 && model.**member <= most, "model.", field.name, "=",
            model.**member, ": give a whole number of at least 1 and at most ", most);
  }
  require(model.head_dim != model.hidden / model.heads || model.hidden % model.heads == 0,
          "model.hidden=", model.hidden, " is not a multiple of model.heads=", model.heads,
          "; change one, or set model.head_dim to another size");
  require(model.heads % model.kv_heads == 0, "model.kv_heads=", model.kv_heads,
          " does not divide model.heads=", model.heads);
  require(model.arch != Arch::llama || model.head_dim % 2 == 0, "model.head_dim=", model.head_dim,
          ": rotary positions turn pairs and want an even one");
  require(model.vocabulary >= 2, "model.vocabulary=", model.vocabulary,
          ": with one token there is nothing to predict; give at least 2");
  require(model.experts_per_token <= model.experts,
          "model.experts_per_token=", model.experts_per_token, " of model.experts=", model.experts,
          ": give at most as many");
  require(model.capacity_factor >= 0 && model.balance_coefficient >= 0,
          "model.capacity_factor and model.balance_coefficient have to be at least 0");
  require(model.norm_epsilon > 0, "model.norm_epsilon=", model.norm_epsilon,
          ": give a number above 0");
  require(model.rotary_base > 0, "model.rotary_base=", model.rotary_base,
          ": give a number above 0");
  require(model.init_std > 0, "model.init_std=", model.init_std, ": give a number above 0");
}

std::string to_json(const ModelConfig& model) {
  Json object;
  for (const Field& field : fields()) {
    std::visit([&](auto member) { object[std::string(field.name)] = json_of(model.*member); },
               field.member);
  }
  return object.dump(2) + "\n";
}

ModelConfig model_from_json(std::string_view text, std::string_view origin) {
  try {
    const Json object = Json::parse(text);
    require(object.is_object(), "want one object, {\"layers\": 24, ...}");
    ModelConfig model;
    for (const auto& [key, value] : object.items()) {
      const std::string plain = value.is_string() ? value.get<std::string>() : value.dump();
      const Field& field = find_field(key);
      std::visit(Assign{model, plain, key, field.may_be_zero}, field.member);
    }
    if (model.name.empty()) model.name = origin;
    fill_usual(model);
    check_model(model);
    return model;
  } catch (const Json::exception& error) {
    throw Error(cat(origin, ": ", error.what()));
  } catch (const Error& error) {
    throw Error(cat(origin, ": ", error.what()));
  }
}

std::int64_t expert_capacity(const ModelConfig& model) {
  const auto choices = static_cast<double>(model.experts_per_token * model.sequence);
  return static_cast<std::int64_t>(
      std::ceil(model.capacity_factor * choices / static_cast<double>(model.experts)));
}

std::int64_t padded_vocabulary(const ModelConfig& model, int ways) {
  const std::int64_t multiple = model.vocabulary_multiple * ways;
  return (model.vocabulary + multiple - 1) / multiple * multiple;
}

}  // namespace mb
