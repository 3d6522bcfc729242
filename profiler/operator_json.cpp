#include "profiler/operator_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::array kFactorNames{"none", "values", "codes"};  // by Factors
constexpr std::array kDimNames{"", "rows", "b", "keys"};       // by TensorDim::Kind
constexpr std::size_t kMaxTensors = 16, kMaxDims = 8;          // of an operator, of a tensor

json amount_json(const SpanAmount& amount) { return {amount.fixed, amount.per_row, amount.per_b, amount.per_key}; }

SpanAmount read_amount(const json& value) {
  const auto numbers = value.get<std::array<double, 4>>();
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

template <std::size_t N>
std::size_t index_of(const std::array<const char*, N>& names, const json& value) {
  for (std::size_t i = 0; i < N; ++i) {
    if (value == names[i]) return i;
  }
  throw std::invalid_argument("an operator has " + value.dump());
}

json tensors_json(const std::vector<TensorFacts>& tensors) {
  json list = json::array();
  for (const TensorFacts& tensor : tensors) {
    json dims = json::array();
    for (const TensorDim& dim : tensor.dims) {
      if (dim.kind == TensorDim::Kind::kFixed) {
        dims.push_back(dim.size);
      } else {
        dims.push_back(kDimNames[static_cast<std::size_t>(dim.kind)]);
      }
    }
    list.push_back({{"type", tensor.type}, {"dims", std::move(dims)}});
  }
  return list;
}

std::vector<TensorFacts> read_tensors(const json& list) {
  if (!list.is_array() || list.size() > kMaxTensors) throw std::invalid_argument("an operator's tensors are no list");
  std::vector<TensorFacts> tensors;
  for (const json& value : list) {
    TensorFacts tensor{.type = value.at("type").get<std::string>(), .dims = {}};
    const json& dims = value.at("dims");
    if (!dims.is_array() || dims.size() > kMaxDims) throw std::invalid_argument("a tensor's dims are no list");
    for (const json& dim : dims) {
      if (dim.is_number_integer()) {
        tensor.dims.emplace_back(dim.get<int64_t>());
      } else {
        tensor.dims.emplace_back(static_cast<TensorDim::Kind>(index_of(kDimNames, dim)));
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Zone zone_of(const json& name) {
  for (int z = 0; z < kNumZones; ++z) {
    if (name == zone_info(static_cast<Zone>(z)).name) return static_cast<Zone>(z);
  }
  throw std::invalid_argument("no operator is called " + name.dump());
}

}  // namespace

void to_json(json& value, const OperatorFacts& facts) {
  value = {{"name", zone_info(facts.zone).name},     {"layers", facts.num_layers},
           {"rows_per_token", facts.rows_per_token}, {"factors", kFactorNames[static_cast<std::size_t>(facts.factors)]},
           {"flop", amount_json(facts.flop)},        {"bytes", amount_json(facts.bytes)},
           {"inputs", tensors_json(facts.inputs)},   {"outputs", tensors_json(facts.outputs)}};
  if (facts.row_keys_per_b != 0) value["row_keys_per_b"] = facts.row_keys_per_b;
}

void from_json(const json& value, OperatorFacts& facts) {
  const Zone zone = zone_of(value.at("name"));
  const double first_unit = zone == Zone::kAttention ? 1000 : 0;  // of captures that do not say
  facts = {.zone = zone,
           .num_layers = value.at("layers").get<int64_t>(),
           .rows_per_token = value.at("rows_per_token").get<int64_t>(),
           .factors = static_cast<Factors>(index_of(kFactorNames, value.at("factors"))),
           .flop = read_amount(value.at("flop")),
           .bytes = read_amount(value.at("bytes")),
           .row_keys_per_b = value.value("row_keys_per_b", first_unit),
           .inputs = read_tensors(value.at("inputs")),
           .outputs = read_tensors(value.at("outputs"))};
}

}  // namespace ferry
