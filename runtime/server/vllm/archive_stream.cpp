#include "runtime/server/vllm/archive_stream.h"

#include <algorithm>
#include <chrono>

#include "runtime/server/status.h"

namespace ferry::vllm {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;
constexpr std::chrono::seconds kReaderPatience{600};  // for a caller to take all pieces

}  // namespace

ArchiveStream::~ArchiveStream() {
  if (is_open_) open_calls_->leave(kPieceBytes);
}

void ArchiveStream::start(grpc::CallbackServerContext& context, TokenizerArchives& archives, TaskPool& pool) {
  self_ = shared_from_this();
  is_open_ = open_calls_->enter(kPieceBytes);
  if (!is_open_) return end({grpc::StatusCode::RESOURCE_EXHAUSTED, "the server holds as many open calls as it can; try later"});
  reader_alarm_.Set(std::chrono::system_clock::now() + kReaderPatience, [weak = weak_from_this(), &context](bool is_time) {
    const std::shared_ptr<ArchiveStream> stream = weak.lock();
    if (stream == nullptr || !is_time) return;
    const std::scoped_lock lock(stream->mutex_);
    if (!stream->has_ended_) context.TryCancel();
  });
  const auto make = [stream = self_, &archives] {
    try {
      stream->archive_ = archives.get();
    } catch (const Error& error) {
      return stream->end(to_status(error));
    } catch (const std::exception& error) {  // such as std::bad_alloc
      return stream->end({grpc::StatusCode::RESOURCE_EXHAUSTED, one_line(error.what())});
    }
    stream->write_piece();
  };
  if (!pool.try_run(make)) end({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many ask for the tokenizer; try later"});
}

void ArchiveStream::refuse(const grpc::Status& status) {
  self_ = shared_from_this();
  end(status);
}

void ArchiveStream::write_piece() {
  const std::string& bytes = archive_->bytes;
  const std::size_t num_bytes = std::min(kPieceBytes, bytes.size() - offset_);
  piece_.set_data(bytes.substr(offset_, num_bytes));
  offset_ += num_bytes;
  if (offset_ == bytes.size()) piece_.set_sha256(archive_->sha256);
  StartWrite(&piece_);
}

void ArchiveStream::end(const grpc::Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    has_ended_ = true;
  }
  Finish(status);
}

void ArchiveStream::OnWriteDone(bool ok) {
  if (!ok) return end({grpc::StatusCode::CANCELLED, "the caller went away"});
  if (offset_ == archive_->bytes.size()) return end(grpc::Status::OK);
  write_piece();
}

void ArchiveStream::OnDone() {
  reader_alarm_.Cancel();
  const auto last_use = std::move(self_);
}

}  // namespace ferry::vllm
