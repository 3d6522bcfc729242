#include "launch/top/styled_line.h"

#include <algorithm>
#include <cwchar>

#include "runtime/base/quoting.h"

namespace ferry {
namespace {

/// One character as a terminal takes it.
struct Glyph {
  std::string_view bytes;
  int columns;
};

/// The first character of `text`, which is not empty, and how many bytes it takes there.
Glyph first_glyph(std::string_view text, std::size_t& num_bytes) {
  std::mbstate_t state{};
  wchar_t character = 0;
  const std::size_t length = std::mbrtowc(&character, text.data(), text.size(), &state);
  const bool is_broken = length == 0 || length > text.size();
  num_bytes = is_broken ? 1 : length;
  const int columns = is_broken ? -1 : wcwidth(character);
  return columns < 0 ? Glyph{"?", 1} : Glyph{text.substr(0, num_bytes), columns};
}

/// As much of `text` as `columns` have room for. `columns` is what is left of them.
std::string fitting(std::string_view text, int& columns) {
  std::string shown;
  while (!text.empty()) {
    std::size_t num_bytes = 0;
    const Glyph glyph = first_glyph(text, num_bytes);
    if (glyph.columns > columns) {
      columns = 0;
      break;
    }
    shown += glyph.bytes;
    columns -= glyph.columns;
    text.remove_prefix(num_bytes);
  }
  return shown;
}

/// ECMA-48's "select graphic rendition".
const char* escape_of(Style style) {
  switch (style) {
    case Style::kPlain: return "";
    case Style::kStrong: return "\x1b[1m";
    case Style::kFaint: return "\x1b[2m";
    case Style::kGood: return "\x1b[32m";
    case Style::kBad: return "\x1b[1;31m";
    case Style::kFirst: return "\x1b[34m";
    case Style::kSecond: return "\x1b[36m";
    case Style::kThird: return "\x1b[35m";
  }
  return "";
}

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    std::size_t num_bytes = 0;
    width += first_glyph(text, num_bytes).columns;
    text.remove_prefix(num_bytes);
  }
  return width;
}

void StyledLine::add(std::string_view text, Style style) { pieces_.push_back({printable(text), style}); }

void StyledLine::pad(int column) {
  const int missing = column - width();
  if (missing > 0) add(std::string(static_cast<std::size_t>(missing), ' '));
}

int StyledLine::width() const {
  int width = 0;
  for (const Piece& piece : pieces_) width += display_width(piece.text);
  return width;
}

std::string StyledLine::render(const Screen& screen) const {
  std::string line;
  int left = screen.columns;
  for (const Piece& piece : pieces_) {
    const std::string text = fitting(piece.text, left);
    const bool is_styled = screen.has_colors && piece.style != Style::kPlain && !text.empty();
    line += is_styled ? escape_of(piece.style) + text + "\x1b[0m" : text;
  }
  return line;
}

}  // namespace ferry
