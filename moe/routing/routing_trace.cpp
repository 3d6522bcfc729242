#include "moe/routing/routing_trace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::string_view kRoutingMagic = "FERRYRT1";
constexpr std::size_t kHeaderBytesMax = std::size_t{1} << 16;
constexpr int64_t kModelNameMax = 1024;
constexpr int64_t kOneByteExperts = 256;
constexpr JsonLimits kHeaderLimits{
    .depth = 3, .bytes = kHeaderBytesMax, .values = 4096, .members = 16, .duplicates = DuplicateKeys::kRefuse};

std::size_t id_bytes(const RoutingShape& shape) { return shape.num_experts <= kOneByteExperts ? 1 : 2; }

template <class Int>
void put(std::vector<std::byte>& out, Int value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
}

/// Takes numbers and pieces off the front of bytes, as far as there are any.
class TraceReader {
 public:
  TraceReader(std::span<const std::byte> bytes, const std::string& source) : rest_(bytes), source_(source) {}

  std::span<const std::byte> take(uint64_t count, const std::string& what) {
    if (count > rest_.size()) {
      refuse(what + " has " + std::to_string(count) + " bytes; allowed: the " + std::to_string(rest_.size()) +
             " that are left");
    }
    const std::span<const std::byte> piece = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(piece.size());
    return piece;
  }
  template <class Int>
  Int number(const std::string& what) {
    uint64_t value = 0;
    const std::span<const std::byte> piece = take(sizeof(Int), what);
    for (std::size_t i = 0; i < piece.size(); ++i) value |= std::to_integer<uint64_t>(piece[i]) << (8 * i);
    return static_cast<Int>(value);
  }
  bool is_at_end() const { return rest_.empty(); }
  std::size_t num_left() const { return rest_.size(); }
  [[noreturn]] void refuse(const std::string& what) const { throw_invalid(source_ + ": routing trace: " + what); }

 private:
  std::span<const std::byte> rest_;
  const std::string& source_;
};

int64_t header_number(const json& header, const char* key, int64_t min, int64_t max, const TraceReader& reader) {
  const auto found = header.find(key);
  if (found == header.end()) reader.refuse(std::string("no ") + key);
  const bool fits = found->is_number_integer() && *found >= min && *found <= max;
  if (!fits) {
    reader.refuse(std::string(key) + " is " + shown(*found) + "; allowed: " + std::to_string(min) + " to " +
                  std::to_string(max));
  }
  return found->get<int64_t>();
}

/// The shape; the number of steps goes to `num_steps`.
RoutingTrace read_routing_header(TraceReader& reader, int64_t& num_steps) {
  const auto magic = reader.take(kRoutingMagic.size(), "the beginning");
  if (std::memcmp(magic.data(), kRoutingMagic.data(), kRoutingMagic.size()) != 0) reader.refuse("does not begin with FERRYRT1");
  const uint32_t size = reader.number<uint32_t>("the header's size");
  if (size > kHeaderBytesMax)
    reader.refuse("a header of " + std::to_string(size) + " bytes; allowed: " + std::to_string(kHeaderBytesMax));
  const auto text = reader.take(size, "the header");
  const json header =
      parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, "the routing trace's header", kHeaderLimits);
  if (!header.is_object()) reader.refuse("the header is " + shown(header) + "; allowed: an object");
  RoutingTrace trace;
  const auto model = header.find("model");
  if (model == header.end() || !model->is_string() || std::ssize(model->get_ref<const std::string&>()) > kModelNameMax)
    reader.refuse("model is " + (model == header.end() ? "not there" : shown(*model)) + "; allowed: a name");
  trace.shape.model = model->get<std::string>();
  trace.shape.num_experts = header_number(header, "num_experts", 1, kRoutingExpertsMax, reader);
  trace.shape.top_k = header_number(header, "top_k", 1, std::min(kRoutingTopKMax, trace.shape.num_experts), reader);
  num_steps = header_number(header, "num_steps", 0, kRoutingBytesMax, reader);
  trace.num_left_out = header_number(header, "num_left_out", 0, int64_t{1} << 60, reader);
  const auto layers = header.find("layers");
  if (layers == header.end() || !layers->is_array() || layers->empty() || std::ssize(*layers) > kRoutingLayersMax)
    reader.refuse("layers is no list of 1 to " + std::to_string(kRoutingLayersMax) + " numbers");
  int64_t least = 0;
  for (const json& layer : *layers) {
    if (!layer.is_number_integer() || layer < least || layer > 2 * kRoutingLayersMax)
      reader.refuse("layers has " + shown(layer) + "; allowed: ascending numbers up to " +
                    std::to_string(2 * kRoutingLayersMax));
    trace.shape.layers.push_back(layer.get<int64_t>());
    least = trace.shape.layers.back() + 1;
  }
  return trace;
}

bool has_twice(std::span<const uint16_t> row) {
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (std::find(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(i), row[i]) !=
        row.begin() + static_cast<std::ptrdiff_t>(i))
      return true;
  }
  return false;
}

void read_step(TraceReader& reader, RoutingTrace& trace) {
  const std::string name = "step " + std::to_string(trace.steps.size());
  RoutingStep step{.id = static_cast<int64_t>(reader.number<uint64_t>(name) & INT64_MAX), .first = trace.ids.size()};
  const uint32_t phase = reader.number<uint32_t>(name), num_rows = reader.number<uint32_t>(name);
  if (phase > 1) reader.refuse(name + " has phase " + std::to_string(phase) + "; allowed: 0, 1");
  if (num_rows < 1 || num_rows > kRoutingRowsMax)
    reader.refuse(name + " has " + std::to_string(num_rows) + " rows; allowed: 1 to " + std::to_string(kRoutingRowsMax));
  step.phase = static_cast<RoutingPhase>(phase);
  step.num_rows = num_rows;
  const RoutingShape& shape = trace.shape;
  const uint64_t count = static_cast<uint64_t>(shape.num_layers()) * num_rows * static_cast<uint64_t>(shape.top_k);
  const auto bytes = reader.take(count * id_bytes(shape), name);
  const bool is_wide = id_bytes(shape) == 2;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned id = is_wide ? std::to_integer<unsigned>(bytes[2 * i]) | std::to_integer<unsigned>(bytes[2 * i + 1]) << 8U
                                : std::to_integer<unsigned>(bytes[i]);
    if (id >= static_cast<unsigned>(shape.num_experts))
      reader.refuse(name + " has expert " + std::to_string(id) + "; allowed: below " + std::to_string(shape.num_experts));
    trace.ids.push_back(static_cast<uint16_t>(id));
  }
  const auto k = static_cast<std::size_t>(shape.top_k);
  for (std::size_t i = step.first; i < trace.ids.size(); i += k)
    if (has_twice(std::span(trace.ids).subspan(i, k))) reader.refuse(name + " has an expert twice in a row");
  trace.steps.push_back(step);
}

}  // namespace

int64_t RoutingTrace::num_rows() const {
  int64_t sum = 0;
  for (const RoutingStep& step : steps) sum += step.num_rows;
  return sum;
}

std::vector<std::byte> encode_routing_trace(const RoutingTrace& trace) {
  const RoutingShape& shape = trace.shape;
  const nlohmann::ordered_json header{
      {"model", shape.model},   {"num_experts", shape.num_experts}, {"top_k", shape.top_k},
      {"layers", shape.layers}, {"num_steps", trace.steps.size()},  {"num_left_out", trace.num_left_out}};
  const std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  std::vector<std::byte> out;
  out.reserve(kRoutingMagic.size() + 4 + text.size() + trace.steps.size() * 16 + trace.ids.size() * id_bytes(shape));
  for (const char c : kRoutingMagic) out.push_back(static_cast<std::byte>(c));
  put(out, static_cast<uint32_t>(text.size()));
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  for (const RoutingStep& step : trace.steps) {
    put(out, static_cast<uint64_t>(step.id));
    put(out, static_cast<uint32_t>(step.phase));
    put(out, static_cast<uint32_t>(step.num_rows));
    const auto size = static_cast<std::size_t>(shape.num_layers() * step.num_rows * shape.top_k);
    for (const uint16_t id : std::span(trace.ids).subspan(step.first, size)) {
      if (id_bytes(shape) == 1) {
        out.push_back(static_cast<std::byte>(id));
      } else {
        put(out, id);
      }
    }
  }
  return out;
}

RoutingTrace decode_routing_trace(std::span<const std::byte> bytes, const std::string& source) {
  TraceReader reader(bytes, source);
  int64_t num_steps = 0;
  RoutingTrace trace = read_routing_header(reader, num_steps);
  trace.ids.reserve(reader.num_left() / id_bytes(trace.shape));
  while (!reader.is_at_end()) read_step(reader, trace);
  if (std::ssize(trace.steps) != num_steps)
    reader.refuse("holds " + std::to_string(trace.steps.size()) + " steps; its header says " + std::to_string(num_steps));
  return trace;
}

RoutingTrace read_routing_trace(const std::filesystem::path& path) {
  std::error_code code;
  const bool is_folder = std::filesystem::is_directory(path, code);
  const std::filesystem::path file = is_folder ? path / kRoutingFile : path;
  if (is_folder && !std::filesystem::exists(file, code))
    throw Error(ErrorCode::kNotFound, path.string() + " holds no " + kRoutingFile +
                                          "; allowed: a capture with --trace-routing, or a file of routing");
  const std::string bytes = read_text_file(file, kRoutingBytesMax);
  return decode_routing_trace(std::as_bytes(std::span(bytes)), file.string());
}

void require_shape(const RoutingTrace& trace, const RoutingShape& model, const std::string& source) {
  const auto text = [](const RoutingShape& shape) {
    return std::to_string(shape.num_layers()) + " layers of " + std::to_string(shape.num_experts) + " experts, " +
           std::to_string(shape.top_k) + " a token";
  };
  const RoutingShape& shape = trace.shape;
  if (shape.num_experts == model.num_experts && shape.top_k == model.top_k && shape.layers == model.layers) return;
  const bool is_other_layers = text(shape) == text(model);
  throw_invalid(source + ": routing of " + text(shape) + "; allowed: of the model's " +
                (is_other_layers ? "same layers, the first of which is " + std::to_string(model.layers.front()) : text(model)));
}

}  // namespace ferry
