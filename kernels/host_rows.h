#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/stream.h"

// The explicit places where the host looks at what a device computed, or gives it something. Where the host shares the
// backend's memory nothing is copied and nothing waits.

namespace ferry {

/// The host's look at rows of a backend's memory, or its hand on them.
class HostRows {
 public:
  HostRows() = default;
  /// Rows of up to `max_rows` x `cols` of `dtype`. The stream outlives it.
  HostRows(Stream& stream, DType dtype, int64_t max_rows, int64_t cols);

  /// Asks for `rows`, which must stay as they are until look() returns.
  void fetch(ConstMatrixView rows);
  /// The rows that were asked for; valid until the next fetch(). Waits for them.
  ConstMatrixView look();

  /// Rows for the host to write, which become `rows` with send(): what they hold now is of no interest, or it is needed (then
  /// this waits for it).
  MatrixView overwrite(MatrixView rows);
  MatrixView edit(MatrixView rows);
  void send();

 private:
  Stream* stream_ = nullptr;
  Matrix copy_;  // empty where memory is shared
  ConstMatrixView rows_;
  MatrixView target_;  // of send()
  Stream::Event fetched_{};
};

/// Room in a backend's memory for rows that the host has, or is to get.
class DeviceRows {
 public:
  DeviceRows() = default;
  /// As of HostRows.
  DeviceRows(Stream& stream, DType dtype, int64_t max_rows, int64_t cols);

  /// `rows` of the host where the backend can read them.
  ConstMatrixView take(ConstMatrixView rows);
  /// Where the backend may compute what is to become `rows` of the host, with give(), which waits.
  MatrixView place_for(MatrixView rows);
  void give(MatrixView rows);

 private:
  Stream* stream_ = nullptr;
  Matrix rows_;  // empty where memory is shared
};

/// Numbers that both sides have: in a backend's memory, and as a copy of the host's where that is another one.
template <class T>
class Mirror {
 public:
  Mirror() = default;
  /// Zeros. The stream outlives it.
  Mirror(Stream& stream, int64_t size)
      : stream_(&stream), device_(stream.memory(), size), copy_(stream.is_on_host() ? 0 : static_cast<std::size_t>(size)) {}

  T* host() { return copy_.empty() ? device_.data().host() : copy_.data(); }
  const T* host() const { return copy_.empty() ? device_.data().host() : copy_.data(); }
  Address<T> device() { return device_.data(); }
  int64_t size() const { return device_.size(); }

  /// Gives the device what the host wrote to [first, first + count).
  void send(int64_t first, int64_t count) {
    if (!copy_.empty()) stream_->copy(bytes(Address<const T>(copy_.data() + first)), bytes(device() + first), size_of(count));
  }
  /// Asks for what the device wrote there, which the host may read when what comes next has been waited for.
  void ask(int64_t first, int64_t count) {
    if (!copy_.empty())
      stream_->copy(bytes(Address<const T>(device() + first)), bytes(Address<T>(copy_.data() + first)), size_of(count));
  }
  /// Likewise, when the event has passed.
  Stream::Event fetch(int64_t first, int64_t count) {
    ask(first, count);
    return stream_->submit();
  }

 private:
  static Address<std::byte> bytes(Address<T> at) { return {reinterpret_cast<std::byte*>(at.raw()), at.space()}; }
  static Address<const std::byte> bytes(Address<const T> at) {
    return {reinterpret_cast<const std::byte*>(at.raw()), at.space()};
  }
  static std::size_t size_of(int64_t count) { return static_cast<std::size_t>(count) * sizeof(T); }

  Stream* stream_ = nullptr;
  Array<T> device_;
  std::vector<T> copy_;  // empty where memory is shared
};

}  // namespace ferry
