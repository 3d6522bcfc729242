#include "kernels/host_rows.h"

namespace ferry {

HostRows::HostRows(Stream& stream, DType dtype, int64_t max_rows, int64_t cols)
    : stream_(&stream), copy_(dtype, stream.is_on_host() ? 0 : max_rows, cols) {}

void HostRows::fetch(ConstMatrixView rows) {
  rows_ = rows;
  if (rows.space == Space::kHost) return;
  FERRY_CHECK_EQ(rows.cols, copy_.cols());
  const MatrixView to = copy_.top(rows.rows);
  copy_rows(*stream_, rows, to);
  fetched_ = stream_->submit();
  rows_ = to;
}

ConstMatrixView HostRows::look() {
  if (stream_ != nullptr) stream_->wait(fetched_);
  return rows_;
}

MatrixView HostRows::overwrite(MatrixView rows) {
  target_ = rows;
  return rows.space == Space::kHost ? rows : copy_.top(rows.rows);
}

MatrixView HostRows::edit(MatrixView rows) {
  fetch(rows);
  look();
  return overwrite(rows);
}

void HostRows::send() {
  if (target_.space == Space::kDevice) copy_rows(*stream_, copy_.top(target_.rows), target_);
}

DeviceRows::DeviceRows(Stream& stream, DType dtype, int64_t max_rows, int64_t cols)
    : stream_(&stream), rows_(stream.memory(), dtype, stream.is_on_host() ? 0 : max_rows, cols) {}

ConstMatrixView DeviceRows::take(ConstMatrixView rows) {
  if (stream_->is_on_host()) return rows;
  const MatrixView to = rows_.top(rows.rows);
  copy_rows(*stream_, rows, to);
  return to;
}

MatrixView DeviceRows::place_for(MatrixView rows) { return stream_->is_on_host() ? rows : rows_.top(rows.rows); }

void DeviceRows::give(MatrixView rows) {
  if (stream_->is_on_host()) return;
  copy_rows(*stream_, rows_.top(rows.rows), rows);
  stream_->wait(stream_->submit());
}

}  // namespace ferry
