// Tables of fields: how a struct of numbers is set from text, read from JSON, checked and printed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {

enum class FieldRange : std::uint8_t {
  above_zero,
  from_zero,
  share,  // above 0, at most 1
  from_one,
};

template <class T>
struct Field {
  std::string_view name;
  std::variant<int& (*)(T&), double& (*)(T&), bool& (*)(T&), std::string& (*)(T&)> of;
  FieldRange range = FieldRange::above_zero;  // of a number
};

// The table of T, whose fields are called prefix.name: `fields` beside `prefix`, "machine.".
template <class T>
class Fields {
 public:
  Fields(std::string_view prefix, std::vector<Field<T>> fields)
      : prefix_(prefix), fields_(std::move(fields)) {}

  void set_text(T& value, std::string_view name, std::string_view text) const {
    if (name.starts_with(prefix_)) name.remove_prefix(prefix_.size());
    const Field<T>& field = find(name);
    if (std::holds_alternative<bool& (*)(T&)>(field.of) ||
        std::holds_alternative<std::string& (*)(T&)>(field.of)) {
      set_word(value, field, text);
    } else {
      set_number(value, field, parse_number(text, cat(prefix_, name)), text);
    }
  }
  void set_json(T& value, std::string_view name, const nlohmann::json& json,
                std::string_view origin) const {
    const Field<T>& field = find(name);
    if (const auto* flag = std::get_if<bool& (*)(T&)>(&field.of)) {
      require(json.is_boolean(), origin, ": ", prefix_, name, " has to be true or false, not ",
              json.dump());
      (*flag)(value) = json;
    } else if (is_number(field)) {
      require(json.is_number(), origin, ": ", prefix_, name, " has to be a number, not ",
              json.dump());
      set_number(value, field, json, json.dump());
    } else {
      require(json.is_string(), origin, ": ", prefix_, name, " has to be a string, not ",
              json.dump());
      set_word(value, field, json.get<std::string>());
    }
  }
  // Throws Error for the first field whose value it may not have.
  void check(const T& value) const {
    T copy = value;
    for (const Field<T>& field : fields_) {
      if (is_number(field)) set_number(copy, field, number(copy, field), cat(number(copy, field)));
    }
  }
  nlohmann::ordered_json to_json(const T& value) const {
    nlohmann::ordered_json json;
    json["name"] = value.name;
    T copy = value;
    for (const Field<T>& field : fields_) {
      const std::string name(field.name);
      std::visit([&](auto of) { json[name] = of(copy); }, field.of);
    }
    return json;
  }
  // `what` prints such a file: "a machine is one JSON object, as '<what>' prints it".
  T from_json(std::string_view text, std::string_view origin, std::string_view what) const {
    T value;
    try {
      const auto json = nlohmann::json::parse(text);
      require(json.is_object(), origin, ": wants one JSON object, as '", what, "' prints it");
      for (const auto& [key, item] : json.items()) {
        if (key != "name") {
          set_json(value, key, item, origin);
          continue;
        }
        require(item.is_string(), origin, ": name has to be a string");
        value.name = item;
      }
    } catch (const nlohmann::json::exception& error) {
      throw Error(cat(origin, ": ", error.what()));
    }
    require(!value.name.empty(), origin, ": ", prefix_, "name is missing");
    return value;
  }

 private:
  static bool is_number(const Field<T>& field) { return field.of.index() < 2; }
  const Field<T>& find(std::string_view name) const {
    return find_named(fields_, name, cat(prefix_, name), [](const Field<T>& f) { return f.name; });
  }
  static double number(T& value, const Field<T>& field) {
    if (const auto* whole = std::get_if<int& (*)(T&)>(&field.of)) return (*whole)(value);
    return std::get<double& (*)(T&)>(field.of)(value);
  }
  void set_number(T& value, const Field<T>& field, double number, std::string_view shown) const {
    const auto* whole = std::get_if<int& (*)(T&)>(&field.of);
    const bool low = field.range == FieldRange::from_zero  ? number >= 0
                     : field.range == FieldRange::from_one ? number >= 1
                                                           : number > 0;
    require(low, prefix_, field.name, "=", shown, ": give a number ",
            field.range == FieldRange::from_zero  ? "of at least 0"
            : field.range == FieldRange::from_one ? "of at least 1"
                                                  : "above 0");
    require(!whole || (number == static_cast<int>(number)), prefix_, field.name, "=", shown,
            ": give a whole number");
    require(field.range != FieldRange::share || number <= 1, prefix_, field.name, "=", shown,
            ": a share of the peak is at most 1");
    if (whole) {
      (*whole)(value) = static_cast<int>(number);
    } else {
      std::get<double& (*)(T&)>(field.of)(value) = number;
    }
  }
  void set_word(T& value, const Field<T>& field, std::string_view word) const {
    if (const auto* text = std::get_if<std::string& (*)(T&)>(&field.of)) {
      (*text)(value) = word;
      return;
    }
    require(word == "true" || word == "false", prefix_, field.name, "=", word,
            ": give true or false");
    std::get<bool& (*)(T&)>(field.of)(value) = word == "true";
  }

  std::string_view prefix_;
  std::vector<Field<T>> fields_;
};

}  // namespace mb
