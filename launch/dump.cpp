#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/pending_file.h"
#include "runtime/checkpoint/safetensors_writer.h"
#include "runtime/engine.h"

namespace ferry {
namespace {

/// Rows of one tensor, collected over the pieces of a prompt.
struct Collected {
  StoredType dtype = StoredType::kF32;
  int64_t cols = 0;
  std::vector<std::byte> data;

  void append(const void* bytes, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(bytes);
    data.insert(data.end(), begin, begin + size);
  }
};

/// Named tensors in the order in which they first appear.
class TapCollector {
 public:
  void add_matrix(const std::string& name, ConstMatrixView values) {
    Collected& to = at(name, StoredType::kF32, values.cols);
    std::vector<float> row(static_cast<std::size_t>(values.cols));
    for (int64_t r = 0; r < values.rows; ++r) {
      visit_dtype(values.dtype, [&]<class T>() {
        for (std::size_t c = 0; c < row.size(); ++c) row[c] = to_float(values.row<T>(r)[c]);
      });
      to.append(row.data(), row.size() * sizeof(float));
    }
  }
  template <class T>
  void add_rows(const std::string& name, StoredType dtype, std::span<const T> values, int64_t cols) {
    at(name, dtype, cols).append(values.data(), values.size_bytes());
  }
  std::vector<TensorToWrite> tensors() const {
    std::vector<TensorToWrite> list;
    for (const std::string& name : order_) {
      const Collected& c = tensors_.at(name);
      const int64_t rows = static_cast<int64_t>(c.data.size()) / (c.cols * stored_type_bytes(c.dtype));
      list.push_back({.name = name, .dtype = c.dtype, .shape = {rows, c.cols}, .data = c.data});
    }
    return list;
  }

 private:
  Collected& at(const std::string& name, StoredType dtype, int64_t cols) {
    const auto [it, is_new] = tensors_.try_emplace(name);
    if (is_new) {
      it->second.dtype = dtype;
      it->second.cols = cols;
      order_.push_back(name);
    }
    return it->second;
  }

  std::map<std::string, Collected> tensors_;
  std::vector<std::string> order_;
};

Tap make_tap(TapCollector& taps, int64_t top_k) {
  return {
      .matrix = [&taps](const char* name, int64_t layer,
                        ConstMatrixView values) { taps.add_matrix(std::string(name) + "." + std::to_string(layer), values); },
      .routing =
          [&taps, top_k](int64_t layer, std::span<const int32_t> ids, std::span<const float> weights) {
            const std::string prefix = "layers." + std::to_string(layer);
            taps.add_rows(prefix + ".topk_ids", StoredType::kI32, ids, top_k);
            taps.add_rows(prefix + ".topk_weights", StoredType::kF32, weights, top_k);
          }};
}

/// recurrent_state.N [num_v_heads, k_dim, v_dim] of every gated delta layer N, from slot 0. `states` keeps what they point to.
void add_recurrent_states(Engine& engine, std::vector<Matrix>& states, std::vector<TensorToWrite>& tensors) {
  const GatedDeltaPlan& d = engine.config().gated_delta;
  int state_layer = 0;
  for (int64_t l = 0; l < engine.config().num_layers(); ++l) {
    if (engine.config().layers[static_cast<std::size_t>(l)].mixer != Mixer::kGatedDelta) continue;
    const ConstMatrixView state = states.emplace_back(engine.delta_state(state_layer++, 0)).view();
    const auto count = static_cast<std::size_t>(d.num_v_heads * d.k_dim * d.v_dim);
    tensors.push_back({.name = "recurrent_state." + std::to_string(l),
                       .dtype = StoredType::kF32,
                       .shape = {d.num_v_heads, d.k_dim, d.v_dim},
                       .data = std::as_bytes(std::span(state.row<float>(0), count))});
  }
}

/// Runs the prompt in the pieces that serving would use, every row with logits.
void run_prompt(Engine& engine, const std::vector<TokenId>& ids, TapCollector& taps, const Tap* tap) {
  const SchedulerOptions& limits = engine.scheduler_options();
  const auto num_prompt = static_cast<int64_t>(ids.size());
  std::vector<int32_t> blocks(static_cast<std::size_t>((num_prompt + limits.block_tokens - 1) / limits.block_tokens));
  std::iota(blocks.begin(), blocks.end(), 0);
  const int32_t slot = 0;
  engine.reset_state(slot);
  StepRows rows;
  for (int64_t done = 0; done < num_prompt;) {
    const int64_t piece = next_prefill_piece(num_prompt, done, limits.prefill_chunk, limits.token_budget);
    rows.clear();
    rows.add({.tokens = std::span(ids).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(piece)),
              .num_past = done,
              .block_table = blocks.data(),
              .state_slot = slot,
              .logits = SequenceRows::Logits::kAll});
    taps.add_matrix("logits", engine.forward(rows.input(prefill_quantum(limits.prefill_chunk)), tap).all_values());
    done += piece;
  }
}

}  // namespace

int run_dump(const Options& options, Cluster& cluster) {
  const EngineStart start{.check = [&](const Engine& e) {
    Request request;
    request.prompt = options.dump.token_ids;
    validate_request(request, e.scheduler_options());
    const PendingFile can_be_written(options.dump.out);
  }};
  Engine engine(options.engine, cluster, Engine::LogitRows::kAll, real_clock(), start);
  TapCollector taps;
  const Tap tap = make_tap(taps, engine.config().moe.top_k);
  run_prompt(engine, options.dump.token_ids, taps, options.dump.taps ? &tap : nullptr);
  std::vector<TensorToWrite> tensors = taps.tensors();
  std::vector<Matrix> states;
  if (options.dump.taps) add_recurrent_states(engine, states, tensors);
  write_safetensors(options.dump.out, tensors);
  return 0;
}

}  // namespace ferry
