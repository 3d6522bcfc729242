#include "runtime/server/vllm/tokenizer_archive.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cstdint>
#include <set>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text_file.h"

namespace ferry::vllm {
namespace {

namespace fs = std::filesystem;

// What receivers take (smg's tokenizer_bundle.rs).
constexpr int64_t kArchiveBytesMax = int64_t{200} << 20;
constexpr std::size_t kArchiveFilesMax = 50;

constexpr std::array kFileNames = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.json",
                                   "config.json",
                                   "generation_config.json",
                                   "preprocessor_config.json",
                                   "processor_config.json",
                                   "video_preprocessor_config.json"};

/// In a fixed order.
std::set<std::string> files_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const char* name : kFileNames) {
    if (fs::is_regular_file(folder / name)) names.insert(name);
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jinja" && entry.is_regular_file()) names.insert(entry.path().filename().string());
  }
  return names;
}

/// Writes a ZIP archive (APPNOTE 6.3.3) of files that are stored as they are, all of 1980-01-01.
class ZipWriter {
 public:
  void add(const std::string& name, const std::string& contents) {
    boost::crc_32_type crc;
    crc.process_bytes(contents.data(), contents.size());
    const auto offset = static_cast<uint32_t>(bytes_.size());
    put(bytes_, 0x04034B50, 4);  // a file's header
    put_facts(bytes_, name, contents, crc.checksum());
    bytes_ += name;
    bytes_ += contents;
    put(directory_, 0x02014B50, 4);  // its entry in the directory
    put(directory_, kVersion, 2);    // of who made it
    put_facts(directory_, name, contents, crc.checksum());
    put(directory_, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put(directory_, offset, 4);
    directory_ += name;
    ++num_files_;
  }

  std::string finish() && {
    const std::size_t directory_offset = bytes_.size();
    bytes_ += directory_;
    put(bytes_, 0x06054B50, 4);  // the directory's end
    put(bytes_, 0, 2 + 2);       // disks
    put(bytes_, num_files_, 2);  // on this disk, and in all
    put(bytes_, num_files_, 2);
    put(bytes_, directory_.size(), 4);
    put(bytes_, directory_offset, 4);
    put(bytes_, 0, 2);  // comment
    return std::move(bytes_);
  }

 private:
  static constexpr uint64_t kVersion = 20;  // 2.0
  static constexpr uint64_t kDate = (0 << 9) | (1 << 5) | 1;

  /// Little-endian; beyond 8 bytes zeros.
  static void put(std::string& to, uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) to.push_back(i < 8 ? static_cast<char>(value >> (8 * i) & 0xFF) : '\0');
  }
  static void put_facts(std::string& to, const std::string& name, const std::string& contents, uint64_t checksum) {
    put(to, kVersion, 2);   // that is needed
    put(to, 0, 2 + 2 + 2);  // flags, method (stored), time
    put(to, kDate, 2);
    put(to, checksum, 4);
    put(to, contents.size(), 4);  // compressed, and as it is
    put(to, contents.size(), 4);
    put(to, name.size(), 2);
    put(to, 0, 2);  // extra fields
  }

  std::string bytes_, directory_;
  uint64_t num_files_ = 0;
};

std::string sha256_of(const std::string& bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return text;
}

}  // namespace

TokenizerArchive make_tokenizer_archive(const fs::path& folder) {
  const std::set<std::string> names = files_of(folder);
  if (names.empty()) throw Error(ErrorCode::kFailedPrecondition, "the checkpoint's folder has no files of a tokenizer");
  if (names.size() > kArchiveFilesMax) {
    throw Error(ErrorCode::kFailedPrecondition, "the checkpoint's folder has " + std::to_string(names.size()) +
                                                    " files for an archive; allowed: at most " +
                                                    std::to_string(kArchiveFilesMax));
  }
  ZipWriter zip;
  int64_t left = kArchiveBytesMax;
  for (const std::string& name : names) {
    const std::string contents = read_text_file(folder / name, left);
    left -= std::ssize(contents);
    zip.add(name, contents);
  }
  TokenizerArchive archive{.bytes = std::move(zip).finish(), .sha256 = ""};
  archive.sha256 = sha256_of(archive.bytes);
  return archive;
}

std::shared_ptr<const TokenizerArchive> TokenizerArchives::get() {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const TokenizerArchive> archive = shared_.lock();
  if (archive == nullptr) {
    if (folder_.empty()) throw Error(ErrorCode::kFailedPrecondition, "the server does not know its checkpoint's folder");
    archive = std::make_shared<const TokenizerArchive>(make_tokenizer_archive(folder_));
    shared_ = archive;
  }
  return archive;
}

}  // namespace ferry::vllm
