#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace ferry {

/// The file of a prefix cache as its plan knows it: pages of one size. 0 pages: there is none.
struct PrefixFileOptions {
  int64_t num_pages = 0;
  int64_t page_bytes = 0;
  int64_t unit_pages = 0;      // that the keys and values of a unit take
  int64_t snapshot_pages = 0;  // that a state takes; 0 without states
};

/// A record of the file, for as long as it is one: its number may be that of another one later, with another serial.
struct FileRecordId {
  int32_t number = -1;
  uint32_t serial = 0;

  bool operator==(const FileRecordId&) const = default;
};

/// Why what was, or was to be, in the file is not there.
enum class FileDrop : uint8_t {
  kReplaced,     // it made room for what is worth more
  kBusy,         // more was to be written than the file keeps up with
  kWriteFailed,  // the disk is full or broken
  kUnreadable,   // reading failed, or what was read is not what was written
};
inline constexpr int kNumFileDrops = 4;

/// "replaced", "busy", "write_failed", "unreadable".
const char* file_drop_name(FileDrop why);

/// What goes to the file before the step writes anything: blocks of the KV cache, or else a snapshot.
struct FileWrite {
  FileRecordId record;
  std::vector<int32_t> pages;
  std::vector<int32_t> blocks;
  int32_t snapshot = -1;
};

/// What is to be read of it.
struct FileRead {
  FileRecordId record;
  std::vector<int32_t> pages;
  bool is_state = false;
};

/// Where what was read goes: blocks of the KV cache, or else a snapshot.
struct FileTarget {
  std::vector<int32_t> blocks;
  int32_t snapshot = -1;
};

/// What became of a read.
struct FileReadResult {
  bool is_good = false;
  int64_t num_bytes = 0;
  double seconds = 0;
};

/// Which pages of the file hold what. It knows numbers alone, not the file. Not thread-safe.
class FileRecords {
 public:
  struct Record {
    std::vector<int32_t> pages;
    uint32_t serial = 0;
    int32_t unit = -1;       // of the prefix cache; -1: there is no such record
    bool is_state = false;   // a snapshot, not keys and values
    bool has_pairs = false;  // keys and values of the MTP layer, too
    int64_t last_used = 0;   // of a state, as its snapshot was
  };

  explicit FileRecords(int64_t num_pages);

  /// A record of `num_pages` that are free.
  int32_t add(int64_t num_pages, int32_t unit, bool is_state);
  void remove(int32_t number);

  bool is_there(FileRecordId id) const;
  FileRecordId id_of(int32_t number) const { return {number, at(number).serial}; }
  Record& at(int32_t number) { return records_[static_cast<std::size_t>(number)]; }
  const Record& at(int32_t number) const { return records_[static_cast<std::size_t>(number)]; }
  /// Numbers of records are below.
  int32_t end() const { return static_cast<int32_t>(records_.size()); }

  int64_t num_total() const { return num_pages_; }
  int64_t num_free() const { return num_pages_ - num_used_; }

 private:
  const int64_t num_pages_;
  int64_t num_used_ = 0;
  int32_t num_touched_ = 0;          // first pages of the file, which were in use before
  std::vector<int32_t> free_pages_;  // of these: the one given back last goes out first
  std::vector<Record> records_;      // by number
  std::vector<int32_t> free_numbers_;
};

/// Whether reading is cheaper than computing, by what both took of late. What was never measured counts as free.
class FileCosts {
 public:
  void add_read(int64_t num_bytes, double seconds);
  void add_prefill(int64_t num_tokens, double seconds);
  /// Whether so many bytes are read sooner than so many tokens are computed. Each no makes reading seem a little faster than it
  /// was, so that a disk that was slow once is tried again.
  bool is_worth_reading(int64_t num_bytes, int64_t num_tokens);

 private:
  double byte_s_ = 0, token_s_ = 0;  // 0: not known yet
};

}  // namespace ferry
