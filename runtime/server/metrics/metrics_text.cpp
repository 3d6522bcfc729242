#include "runtime/server/metrics/metrics_text.h"

#include <charconv>
#include <cmath>

#include "runtime/base/check.h"

namespace ferry {
namespace {

const char* kind_name(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter: return "counter";
    case MetricKind::kGauge: return "gauge";
    case MetricKind::kHistogram: return "histogram";
  }
  return "untyped";
}

/// The shortest text that is read as the same number.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// A bucket's bound as Python's client writes it, which dashboards select by: whole numbers with ".0".
std::string bound_text(double bound) {
  char text[32];
  std::string digits(text, std::to_chars(text, text + sizeof text, bound, std::chars_format::fixed).ptr);
  return digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

enum class Quotes { kKept, kEscaped };

/// A backslash, a line's end and, in labels, a quote are escaped.
std::string escaped(std::string_view text, Quotes quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || (c == '"' && quotes == Quotes::kEscaped)) result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

void MetricsText::begin(std::string_view name, MetricKind kind, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + " " + escaped(help, Quotes::kKept) + "\n# TYPE " + name_ + " " + kind_name(kind) + "\n";
}

void MetricsText::add(double value, const MetricLabels& labels) { add_sample("", labels, "", value); }

void MetricsText::add(const Histogram& histogram, const MetricLabels& labels) {
  double num_values = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    const bool is_last = i == histogram.bounds().size();
    num_values += static_cast<double>(histogram.counts()[i]);
    add_sample("_bucket", labels, is_last ? "+Inf" : bound_text(histogram.bounds()[i]), num_values);
  }
  add_sample("_sum", labels, "", histogram.sum());
  add_sample("_count", labels, "", num_values);
}

/// `bound` is the label "le" of a bucket, else empty.
void MetricsText::add_sample(std::string_view suffix, const MetricLabels& labels, std::string_view bound, double value) {
  FERRY_CHECK(!name_.empty()) << "a sample of no metric";
  std::string inner;
  const auto label = [&](std::string_view name, std::string_view text) {
    inner.append(inner.empty() ? "" : ",").append(name).append("=\"").append(escaped(text, Quotes::kEscaped)).append("\"");
  };
  for (const auto& [name, text] : labels_) label(name, text);
  for (const auto& [name, text] : labels) label(name, text);
  if (!bound.empty()) label("le", bound);
  text_.append(name_).append(suffix);
  if (!inner.empty()) text_.append("{").append(inner).append("}");
  text_.append(" ").append(number(value)).append("\n");
}

}  // namespace ferry
