#include "runtime/text/jinja/heap.h"

#include <algorithm>

namespace ferry::jinja {
namespace {

constexpr int64_t kStepsPerCheck = 4096;
constexpr std::size_t kFewEntries = 8;  // of a dict: comparing all keys is as quick as hashing one

}  // namespace

Held::~Held() {
  if (heap != nullptr) heap->release(num_bytes);
}

void Heap::look_up() {
  next_check_ = num_steps_ + kStepsPerCheck;
  if (num_steps_ > limits_.steps) fail("it takes more than " + std::to_string(limits_.steps) + " steps");
  if (check_in_) check_in_();
}

void Heap::require(std::size_t num_bytes) const {
  if (static_cast<int64_t>(num_bytes) > limits_.held_bytes - num_held_bytes_ || num_bytes > static_cast<std::size_t>(INT64_MAX))
    fail("its values take more than " + std::to_string(limits_.held_bytes >> 20) + " MiB");
}

void Heap::hold(int64_t num_bytes) {
  require(static_cast<std::size_t>(num_bytes));
  read(static_cast<std::size_t>(num_bytes));
  num_held_bytes_ += num_bytes;
}

void Heap::own(Held& held, std::size_t num_bytes) {
  hold(static_cast<int64_t>(num_bytes));
  held.heap = this;
  held.num_bytes = static_cast<int64_t>(num_bytes);
}

int Heap::depth_around(std::span<const Value> items) const {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (depth >= limits_.value_depth) fail("values are nested deeper than " + std::to_string(limits_.value_depth));
  return depth + 1;
}

Value Heap::text(std::string bytes, bool is_safe) {
  auto made = std::make_shared<Text>();
  own(*made, sizeof(Text) + bytes.size());
  made->bytes = std::move(bytes);
  made->is_safe = is_safe;
  return TextPtr(std::move(made));
}

Value Heap::undefined(std::string message) {
  const Value held = text(std::move(message));
  return Undefined{.of = nullptr, .name = held.get<TextPtr>(), .is_message = true};
}

Value Heap::sequence(Sequence::Form form, std::vector<Value> items, std::string label) {
  auto made = std::make_shared<Sequence>();
  own(*made, sizeof(Sequence) + items.size() * sizeof(Value));
  made->depth = depth_around(items);
  made->form = form;
  made->items = std::move(items);
  made->label = std::move(label);
  return SequencePtr(std::move(made));
}

Value Heap::group(Value grouper, Value items) {
  auto made = std::make_shared<Sequence>();
  own(*made, sizeof(Sequence) + 2 * sizeof(Value));
  made->form = Sequence::Form::kTuple;
  made->items = {std::move(grouper), std::move(items)};
  made->depth = depth_around(made->items);
  made->is_group = true;
  return SequencePtr(std::move(made));
}

/// Python's rule for equal keys, in n log n steps.
Value Heap::dict(std::vector<Dict::Entry> entries) {
  auto made = std::make_shared<Dict>();
  own(*made, sizeof(Dict) + entries.size() * (sizeof(Dict::Entry) + 16));
  int depth = 0;
  for (const Dict::Entry& entry : entries)
    depth = std::max({depth, depth_around({&entry.first, 1}), depth_around({&entry.second, 1})});
  made->depth = std::max(depth, 1);
  std::vector<std::pair<std::size_t, uint32_t>> order;
  order.reserve(entries.size());
  for (const Dict::Entry& entry : entries) order.emplace_back(hash_of(entry.first, *this), static_cast<uint32_t>(order.size()));
  std::sort(order.begin(), order.end());
  std::vector<bool> is_repeated(entries.size());
  for (std::size_t run = 0; run < order.size();) {
    std::size_t end = run + 1;
    while (end < order.size() && order[end].first == order[run].first) ++end;
    for (std::size_t i = run + 1; i < end; ++i) {
      for (std::size_t first = run; first < i; ++first) {
        const uint32_t at = order[first].second;
        if (is_repeated[at] || !equal(entries[at].first, entries[order[i].second].first, *this)) continue;
        entries[at].second = entries[order[i].second].second;
        is_repeated[order[i].second] = true;
        break;
      }
    }
    run = end;
  }
  if (std::find(is_repeated.begin(), is_repeated.end(), true) != is_repeated.end()) {
    std::vector<Dict::Entry> unique;
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (!is_repeated[i]) unique.push_back(std::move(entries[i]));
    entries = std::move(unique);
    order.clear();
    for (const Dict::Entry& entry : entries)
      order.emplace_back(hash_of(entry.first, *this), static_cast<uint32_t>(order.size()));
    std::sort(order.begin(), order.end());
  }
  made->entries = std::move(entries);
  if (made->entries.size() > kFewEntries) made->by_hash = std::move(order);
  return DictPtr(std::move(made));
}

Value Heap::name_space(std::vector<std::pair<std::string, Value>> attributes) {
  auto made = std::make_shared<Namespace>();
  own(*made, sizeof(Namespace));
  namespaces_.push_back(made);
  for (auto& [name, value] : attributes) made->set(name, std::move(value));
  return NamespacePtr(std::move(made));
}

std::shared_ptr<Frame> Heap::frame(std::shared_ptr<Frame> parent) { return object<Frame>(std::move(parent)); }

void Heap::keep(const std::shared_ptr<Frame>& frame) {
  if (frame->is_kept) return;
  frame->is_kept = true;
  kept_frames_.push_back(frame);
}

void Heap::break_cycles() {
  for (const auto& frame : kept_frames_) frame->clear();
  for (const auto& each : namespaces_) each->attributes.clear();
}

const Value* Frame::find(std::string_view name) const {
  LookUp look_up(heap, name);
  for (const Frame* frame = this; frame != nullptr; frame = frame->parent_.get()) {
    for (const auto& [key, value] : frame->variables_)
      if (look_up.is_it(key)) return &value;
  }
  return nullptr;
}

void Frame::set(std::string_view name, Value value) {
  LookUp look_up(heap, name);
  for (auto& [key, held] : variables_) {
    if (!look_up.is_it(key)) continue;
    held = std::move(value);
    return;
  }
  constexpr int64_t kEntryBytes = 2 * sizeof(std::pair<std::string_view, Value>);  // vectors grow by doubling
  heap->hold(kEntryBytes);
  num_bytes += kEntryBytes;
  variables_.emplace_back(name, std::move(value));
}

}  // namespace ferry::jinja
