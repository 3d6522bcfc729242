#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8 as the text side needs it: repairing what is malformed, composing (NFC) and stripping white space.

namespace ferry {

/// UTF-8 of U+FFFD, which stands for bytes that are not text.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// What the first bytes of a string are.
struct Utf8Step {
  enum class Kind {
    kCharacter,   // one well-formed character
    kMalformed,   // bytes that no continuation can turn into a character
    kIncomplete,  // the beginning of a character, cut off by the end of the string
  };
  Kind kind = Kind::kCharacter;
  size_t num_bytes = 0;  // bytes; for the last two kinds a "maximal subpart", which one U+FFFD replaces
};

/// Classifies the beginning of `bytes`, which must not be empty. Well-formed is what table 3-7 of the Unicode standard allows:
/// no surrogates, no overlong forms, nothing above U+10FFFF.
Utf8Step next_utf8(std::string_view bytes);

/// What to do with a character that the end of the string cuts off.
enum class CutCharacter {
  kKeepBack,  // leave its bytes unread: more may follow
  kReplace,   // write U+FFFD: nothing follows
};

/// Appends `bytes` to `out`, each maximal malformed subpart replaced by one U+FFFD (the Unicode standard, section 3.9, and what
/// Rust's from_utf8_lossy does). Returns how many bytes were read: all of them unless `cut` keeps some back (at most 3).
size_t append_utf8_lossy(std::string_view bytes, CutCharacter cut, std::string& out);

/// `bytes` with everything malformed replaced; text that is well-formed comes back as it is.
std::string repair_utf8(std::string_view bytes);

/// True if `bytes` is well-formed UTF-8.
bool is_utf8(std::string_view bytes);

/// Unicode normalisation form C of well-formed UTF-8, by the tables that Hugging Face's tokenizers have (Unicode 9; see
/// kMarksAfterUnicode9 in the source). Time is n log n also for long runs of combining marks.
std::string to_nfc(std::string_view text);

/// Whether Python's str.isspace() is true of a character: bidirectional type WS, B or S, or category Zs.
bool is_python_space(char32_t c);

/// `text` without white space at both ends, white space being what Python's str.strip() removes.
std::string_view strip_white_space(std::string_view text);
std::string_view strip_white_space_left(std::string_view text);
std::string_view strip_white_space_right(std::string_view text);

}  // namespace ferry
