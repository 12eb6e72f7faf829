// Terms of PMU events, with directory trees that look like sysfs: the results of perf 6.1 for the same terms, and what the hardware does
// not support.
#include "capture/live/events/pmu_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"

namespace ptd::live {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PmuTerms : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(devices()); }
  void TearDown() override { fs::remove_all(root_); }
  [[nodiscard]] fs::path devices() const { return root_ / "bus/event_source/devices"; }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((devices() / path).parent_path());
    std::ofstream(devices() / path) << text << "\n";
  }
  /// The files of a Skylake client, as in its sysfs.
  void make_skylake() const {
    put("intel_pt/type", "8");
    put("intel_pt/max_nonturbo_ratio", "34");
    const std::pair<const char*, const char*> formats[] = {{"pt", "config:0"},
                                                           {"cyc", "config:1"},
                                                           {"pwr_evt", "config:4"},
                                                           {"fup_on_ptw", "config:5"},
                                                           {"mtc", "config:9"},
                                                           {"tsc", "config:10"},
                                                           {"noretcomp", "config:11"},
                                                           {"ptw", "config:12"},
                                                           {"branch", "config:13"},
                                                           {"mtc_period", "config:14-17"},
                                                           {"cyc_thresh", "config:19-22"},
                                                           {"psb_period", "config:24-27"}};
    for (const auto& [name, bits] : formats) put(std::string("intel_pt/format/") + name, bits);
    const std::pair<const char*, const char*> caps[] = {
        {"mtc", "1"},          {"mtc_periods", "249"}, {"psb_cyc", "1"},           {"cycle_thresholds", "3fff"},
        {"psb_periods", "3f"}, {"ptwrite", "0"},       {"power_event_trace", "0"}, {"num_address_ranges", "2"}};
    for (const auto& [name, value] : caps) put(std::string("intel_pt/caps/") + name, value);
  }
  [[nodiscard]] Result<PmuEvent> parse(const std::string& text) const { return parse_pmu_event(text, root_.string()); }
  void refused(const std::string& text, const std::string& says) const {
    const Result<PmuEvent> event = parse(text);
    ASSERT_FALSE(event.ok()) << text;
    EXPECT_THAT(event.error().message, HasSubstr(says)) << text;
  }
  fs::path root_ = fs::temp_directory_path() / ("ptdecode-sysfs-" + std::to_string(getpid()));
};

TEST_F(PmuTerms, FormatsAsTheKernelWritesThem) {
  const TermFormat plain = parse_term_format("config:13"), many = parse_term_format("config2:0-3,32");
  EXPECT_EQ(plain.word, 0U);
  EXPECT_EQ(plain.bits, (std::vector<uint32_t>{13}));
  EXPECT_EQ(many.word, 2U);
  EXPECT_EQ(many.bits, (std::vector<uint32_t>{0, 1, 2, 3, 32}));
  for (const char* bad : {"", "config", "config:", "config:x", "config4:1", "config:3-1", "config:64", "configs:1", "umask:3"}) {
    EXPECT_TRUE(parse_term_format(bad).bits.empty()) << bad;
  }
}

TEST_F(PmuTerms, DefaultsArePerfs) {
  make_skylake();
  // perf 6.1 on such a machine: "intel_pt//u" has config 0x300e601: pt, tsc, branch, mtc, mtc_period=3, psb_period=3. Here psb_period stays
  // 0, the hardware's default.
  const Result<PmuEvent> event = parse("intel_pt//u");
  ASSERT_TRUE(event.ok()) << event.error().message;
  EXPECT_EQ(event->spec.config & 0xffffff, 0x00e601U);
  EXPECT_EQ(event->spec.type, 8U);
  EXPECT_TRUE(event->spec.exclude_kernel && event->spec.exclude_hv && !event->spec.exclude_user);
}

TEST_F(PmuTerms, TermsSetTheirBits) {
  make_skylake();
  const Result<PmuEvent> event = parse("intel_pt/cyc,cyc_thresh=4,noretcomp,mtc_period=9,psb_period=5,branch=0/k");
  ASSERT_TRUE(event.ok()) << event.error().message;
  const perfio::IntelPtConfig config = [&] {
    TraceSetup setup;
    const auto info = make_auxtrace_info(*event, setup, nullptr);
    perfio::EventAttr attr;
    attr.type = event->spec.type;
    attr.config = event->spec.config;
    return perfio::intel_pt_config(perfio::parse_intel_pt_info(*info), {attr});
  }();
  EXPECT_TRUE(config.valid && config.tsc && config.mtc && config.cyc);
  EXPECT_FALSE(config.return_compression);
  EXPECT_EQ(config.cyc_threshold, 4);
  EXPECT_EQ(config.mtc_period, 9);
  EXPECT_EQ(config.psb_period, 5);
  EXPECT_TRUE(event->spec.exclude_user && !event->spec.exclude_kernel);
}

TEST_F(PmuTerms, WhatTheProcessorCannotDoIsNamed) {
  make_skylake();
  refused("intel_pt/mtc_period=2/", "mtc_period=2 is not supported by this processor, which supports: 0, 3, 6, 9");
  refused("intel_pt/cyc,cyc_thresh=14/", "cyc_thresh=14");
  refused("intel_pt/psb_period=6/", "0, 1, 2, 3, 4, 5");
  refused("intel_pt/ptw/", "does not support 'ptw' (caps/ptwrite is 0)");
  refused("intel_pt/pwr_evt/", "power_event_trace");
  refused("intel_pt/event/", "no term 'event'");
  refused("intel_pt/cyc_thresh=1/", "needs cyc");
  refused("intel_pt/mtc=0,mtc_period=3/", "has no effect");
  refused("intel_pt/psb_period=16/", "4 bits");
  refused("intel_pt/tsc=x/", "is not a number");
  refused("intel_pt/tsc=-1/", "is not a number");
  refused("intel_pt//w", "levels");
  refused("intel_pt", "NAME/TERMS/LEVELS");
  refused("cs_etm//u", "no 'cs_etm'");
  refused("cs_etm//u", "it has: intel_pt");
  refused("../../etc//", "no '..");
  refused("//", "no ''");
}

TEST_F(PmuTerms, WithoutMtcThereIsNone) {
  make_skylake();
  put("intel_pt/caps/mtc", "0");
  const Result<PmuEvent> event = parse("intel_pt//");
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(event->spec.config, 0x2401U);
  refused("intel_pt/mtc/", "caps/mtc is 0");
}

TEST_F(PmuTerms, HeaderOfIntelPtReadsBack) {
  make_skylake();
  put("intel_pt/caps/event_trace", "1");
  const Result<PmuEvent> event = parse("intel_pt//");
  ASSERT_TRUE(event.ok());
  TraceSetup setup;
  setup.whole_cpus = setup.snapshot = true;
  setup.tsc_ctc_n = 184;
  setup.tsc_ctc_d = 2;
  setup.filter = "filter 0x10/0x20@/bin/x";
  perfio::TimeConvRecord clock;
  clock.time_shift = 31;
  clock.time_mult = 77;
  clock.time_zero = 12345;
  clock.cap_user_time_zero = true;
  const auto record = make_auxtrace_info(*event, setup, &clock);
  ASSERT_TRUE(record.ok());
  perfio::AuxtraceInfoRecord whole = *record;
  const perfio::IntelPtInfo info = perfio::parse_intel_pt_info(whole);
  ASSERT_TRUE(info.valid);
  EXPECT_EQ(info.pmu_type, 8U);
  EXPECT_EQ(info.time_zero, 12345U);
  EXPECT_TRUE(info.cap_user_time_zero && info.snapshot_mode && info.per_cpu_mmaps && info.cap_event_trace);
  EXPECT_EQ(info.have_sched_switch, 3U);
  EXPECT_EQ(info.tsc_bit, 1U << 10);
  EXPECT_EQ(info.mtc_freq_bits, 0xfU << 14);
  EXPECT_EQ(info.tsc_ctc_ratio_n, 184U);
  EXPECT_EQ(info.max_nonturbo_ratio, 34);
  EXPECT_EQ(info.filter, setup.filter);
}

TEST_F(PmuTerms, CoreSightSinksAndHeader) {
  put("cs_etm/type", "9");
  for (const auto& [name, bits] : {std::pair{"cycacc", "config:12"},
                                   {"contextid1", "config:14"},
                                   {"timestamp", "config:28"},
                                   {"retstack", "config:29"},
                                   {"sinkid", "config2:0-31"}}) {
    put(std::string("cs_etm/format/") + name, bits);
  }
  put("cs_etm/sinks/tmc_etr0", "0x2a");
  put("cs_etm/cpu0/trcidr/trcidr0", "0x28000ea1");
  put("cs_etm/cpu0/trcidr/trcidr1", "0x4100f403");
  put("cs_etm/cpu0/trcidr/trcidr2", "0x488");
  put("cs_etm/cpu0/mgmt/trcdevarch", "0x47704a13");
  put("cs_etm/cpu1/trcidr/trcidr0", "0x28000ea1");
  put("cs_etm/cpu1/trcidr/trcidr1", "0x4100fff0");
  put("cs_etm/cpu1/mgmt/trcdevarch", "0x47705a13");
  const Result<PmuEvent> event = parse("cs_etm/@tmc_etr0,retstack/u");
  ASSERT_TRUE(event.ok()) << event.error().message;
  EXPECT_EQ(event->spec.config2, 0x2aU);
  EXPECT_EQ(event->spec.config, 1U << 14 | 1U << 28 | 1U << 29);
  refused("cs_etm/@etf/u", "available: tmc_etr0");
  TraceSetup setup;
  setup.cpus = {0, 1};
  const auto record = make_auxtrace_info(*event, setup, nullptr);
  ASSERT_TRUE(record.ok()) << record.error().message;
  const perfio::EtmInfo info = perfio::parse_etm_info(*record);
  ASSERT_TRUE(info.valid);
  ASSERT_EQ(info.cpus.size(), 2U);
  EXPECT_EQ(info.pmu_type, 9U);
  EXPECT_EQ(info.cpus[0].kind, perfio::EtmKind::etmv4);
  EXPECT_EQ(info.cpus[0].idr0, 0x28000ea1U);
  EXPECT_EQ(info.cpus[0].configr, 1U << 6 | 1U << 11 | 1U << 12);
  EXPECT_EQ(info.cpus[0].traceidr, 0x10U);
  EXPECT_EQ(info.cpus[1].kind, perfio::EtmKind::ete);
  EXPECT_EQ(info.cpus[1].devarch, 0x47705a13U);
  setup.cpus = {0, 5};
  EXPECT_FALSE(make_auxtrace_info(*event, setup, nullptr).ok());
}

}  // namespace
}  // namespace ptd::live
