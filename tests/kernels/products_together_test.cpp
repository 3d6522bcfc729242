#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "profiler/recorder.h"
#include "tests/kernels/product_cases.h"
#include "tests/kernels/products.h"

// Several products of the same rows in one call.

namespace ferry {
namespace {

constexpr int64_t kK = 192;

/// Rows in bf16 and their codes, and matrices of several types and widths.
struct SameRows {
  SameRows(Matmul& matmul, int64_t num_rows, bool has_codes) : x(random_matrix(DType::kBF16, num_rows, kK, 1)), codes(x) {
    const auto plain = [&](int64_t n, WeightUse use, uint32_t seed) {
      weights.push_back(matmul.pack(random_matrix(DType::kBF16, n, kK, seed).view(), use));
    };
    plain(290, WeightUse::kPlain, 2);
    plain(1, WeightUse::kPlain, 3);
    if (has_codes) {
      weights.push_back(matmul.pack(random_codes(int4(64), 130, kK, 4), WeightUse::kGated));
      weights.push_back(matmul.pack(random_codes(kInt8, 33, kK, 5), WeightUse::kPlain));
      weights.push_back(matmul.pack(random_codes(e4m3(64), 40, kK, 6), WeightUse::kPlain));
      plain(44, WeightUse::kGated, 7);
    }
    plain(65, WeightUse::kPlain, 8);
    // Less than half of what a panel before it takes.
    if (has_codes) weights.push_back(matmul.pack(random_codes(int4(64), 31, kK, 9), WeightUse::kPlain));
    for (const auto& matrix : weights) {
      outs.emplace_back(DType::kBF16, num_rows, matrix->out_cols());
      fill(outs.back().view(), std::numeric_limits<float>::quiet_NaN());
    }
  }

  MatmulRows rows_of(const PackedMatrix& matrix) const {
    return matrix.type().is_integer() ? codes.view() : MatmulRows{x.view()};
  }
  std::vector<NamedProduct> products() {
    constexpr Zone kNames[] = {Zone::kInProjQkv, Zone::kInProjZ, Zone::kSharedGateUp, Zone::kSharedGate,
                               Zone::kQProj,     Zone::kKProj,   Zone::kVProj,        Zone::kRouter};
    std::vector<NamedProduct> products;
    for (std::size_t i = 0; i < weights.size(); ++i)
      products.push_back({kNames[i], rows_of(*weights[i]), weights[i].get(), outs[i].view()});
    return products;
  }

  Matrix x;
  CodedRows codes;
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  std::vector<Matrix> outs;
};

void expect_like_alone(Matmul& matmul, bool has_codes) {
  for (const int64_t num_rows : {1, 2, 5, 16, 33, 72, 73}) {
    SameRows same(matmul, num_rows, has_codes);
    for (const int num_threads : {1, 2, 5, 40}) {
      test::TestStream stream(num_threads);
      for (Matrix& out : same.outs) fill(out.view(), std::numeric_limits<float>::quiet_NaN());
      matmul.matmuls(stream, same.products());
      for (std::size_t i = 0; i < same.weights.size(); ++i) {
        const Matrix alone = multiply(matmul, same.rows_of(*same.weights[i]), *same.weights[i], DType::kBF16);
        expect_same_bits(alone.view(), same.outs[i].view(),
                         std::string(matmul.name()) + ", " + std::to_string(num_rows) + " rows, " +
                             std::to_string(num_threads) + " threads, product " + std::to_string(i));
      }
    }
  }
}

TEST(ProductsTogether, HaveTheBitsThatTheyHaveAlone) {
  for (const auto& backend : all_backends()) expect_like_alone(*backend, true);
  expect_like_alone(*make_ref_matmul(), true);
  if (const auto onednn = make_onednn_matmul(DType::kBF16)) expect_like_alone(*onednn, false);
}

TEST(ProductsTogether, NoRowsAndNoProductsAreNothing) {
  for (const auto& backend : all_backends()) {
    test::TestStream stream(2);
    SameRows none(*backend, 0, true);
    backend->matmuls(stream, none.products());
    backend->matmuls(stream, {});
  }
}

/// The spans of `matmuls`, whatever their number of rows.
std::vector<SpanRecord> spans_of(Matmul& matmul, std::span<const NamedProduct> products) {
  test::TestStream stream(2);
  recorder().register_thread("test");
  recorder().start({.level = TraceLevel::kOperators});
  matmul.matmuls(stream, products);
  const RankCapture capture = recorder().stop();
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.name == "test") return thread.records;
  }
  return {};
}

TEST(ProductsTogether, EachIsASpanBehindTheLast) {
  for (const auto& backend : all_backends()) {
    for (const int64_t num_rows : {3, 100}) {
      SameRows same(*backend, num_rows, true);
      const std::vector<NamedProduct> products = same.products();
      const std::vector<SpanRecord> spans = spans_of(*backend, products);
      ASSERT_EQ(spans.size(), products.size()) << num_rows << " rows";
      for (std::size_t i = 0; i < spans.size(); ++i) {
        EXPECT_EQ(spans[i].zone, products[i].zone);
        EXPECT_EQ(spans[i].a, static_cast<uint32_t>(num_rows));
        EXPECT_LE(spans[i].begin, spans[i].end);
        if (i > 0) {
          EXPECT_LE(spans[i - 1].end, spans[i].begin);
        }
      }
    }
  }
}

TEST(ProductsTogether, OfFewRowsShareTheirTimeByBytes) {
  for (const auto& backend : all_backends()) {
    SameRows same(*backend, 3, true);
    const std::vector<SpanRecord> spans = spans_of(*backend, same.products());
    ASSERT_EQ(spans.size(), same.weights.size());
    double bytes = 0;
    for (const auto& matrix : same.weights) bytes += static_cast<double>(matrix->packed_bytes());
    const auto length = static_cast<double>(spans.back().end - spans.front().begin);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const double share = static_cast<double>(same.weights[i]->packed_bytes()) / bytes;
      EXPECT_NEAR(static_cast<double>(spans[i].end - spans[i].begin), share * length, 2.0) << "ticks, product " << i;
    }
  }
}

}  // namespace
}  // namespace ferry
