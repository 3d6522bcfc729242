#include "kernels/cpu/unpack_panels.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/kernels/matrices.h"
#include "tests/kernels/panel_cases.h"
#include "tests/kernels/products.h"

namespace ferry {
namespace {

using test::all_panel_cases, test::bytes_of, test::e4m3, test::int4, test::kInt8, test::pack, test::PanelCase,
    test::random_codes;

TEST(UnpackPanels, GivesTheCodesBackThatWerePacked) {
  ThreadPool pool(3);
  for (const PanelCase& c : all_panel_cases()) {
    const QuantizedMatrix w = random_codes(c);
    const AlignedBuffer panels = pack(w, c.use);
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const QuantizedMatrix back = unpack_panels(w.n, w.k, w.type, c.use, bytes_of(panels, w, c.use), threads);
      ASSERT_TRUE(back.type == w.type && back.n == w.n && back.k == w.k && back.group == w.group) << c.text();
      ASSERT_EQ(back.codes, w.codes) << c.text();
      ASSERT_EQ(back.scales, w.scales) << c.text();
      ASSERT_EQ(back.zero_points, w.zero_points) << c.text();
    }
  }
}

TEST(UnpackPanels, GivesBackWhatQuantisationFinds) {
  const Matrix weights = random_matrix(DType::kBF16, 41, 256, 11);
  for (const WeightType type : {kInt8, int4(32), int4(64), int4(128), int4(256)}) {
    const QuantizedMatrix w = quantize_weights(weights.view(), type);
    const QuantizedMatrix back =
        unpack_panels(w.n, w.k, type, WeightUse::kPlain, bytes_of(pack(w, WeightUse::kPlain), w, WeightUse::kPlain));
    EXPECT_TRUE(back.codes == w.codes && back.scales == w.scales && back.zero_points == w.zero_points)
        << weight_type_name(type);
  }
}

/// What has another layout than panels multiplies them as if it had packed the codes itself.
TEST(UnpackPanels, PanelsAreAdoptedByWhatHasAnotherLayout) {
  const auto ref = make_ref_matmul();
  EXPECT_FALSE(ref->borrows_panels());
  for (const PanelCase& c :
       {PanelCase{kInt8, 34, 65, WeightUse::kGated}, PanelCase{int4(32), 33, 96, WeightUse::kPlain},
        PanelCase{int4(64, true), 40, 128, WeightUse::kPlain}, PanelCase{e4m3(128), 20, 160, WeightUse::kGated}}) {
    const QuantizedMatrix w = random_codes(c);
    const AlignedBuffer panels = pack(w, c.use);
    const std::unique_ptr<PackedMatrix> adopted = ref->adopt(w.n, w.k, w.type, c.use, bytes_of(panels, w, c.use));
    EXPECT_EQ(adopted->is_gated(), c.use == WeightUse::kGated);
    const Matrix x = random_matrix(DType::kBF16, 5, w.k, 13);
    const CodedRows coded(x);
    const MatmulRows rows = w.type.is_integer() ? coded.view() : MatmulRows{x.view()};
    expect_same_bits(multiply(*ref, rows, *ref->pack(w, c.use), DType::kBF16).view(),
                     multiply(*ref, rows, *adopted, DType::kBF16).view(), c.text());
  }
}

}  // namespace
}  // namespace ferry
