#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ferry {

/// An expert of one of the layers with experts.
using ExpertKey = std::pair<int64_t, int32_t>;  // layer and expert

/// What this rank makes of experts that no worker has had, as a word beside those of workers that read them: their canaries,
/// one after another, beside the steps. Used by the thread that steps; no call waits.
class CanaryWitness {
 public:
  struct Song {
    ExpertKey key;
    uint64_t canary = 0;
  };
  virtual ~CanaryWitness() = default;

  /// Of the kernels that it sings with: canaries of another voice are not comparable.
  virtual uint64_t voice() const = 0;
  /// Begins with other experts; those of before do not count any more.
  virtual void begin(std::vector<ExpertKey> experts) = 0;
  /// What is known since the last call.
  virtual std::vector<Song> take() = 0;
  /// Whether no more will be.
  virtual bool is_over() const = 0;
  virtual void give_up() = 0;
};

}  // namespace ferry
