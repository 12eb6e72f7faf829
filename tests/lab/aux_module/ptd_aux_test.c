// SPDX-License-Identifier: (GPL-2.0 OR MIT)
/*
 * A PMU that writes a pattern into the AUX area as trace hardware would, so that rings can be tested without such hardware.
 *
 * A timer per cpu simulates the hardware: every `period_ns` it writes some bytes through perf_aux_output_begin() and perf_aux_output_end().
 * Configuration in perf_event_attr:
 *   config   bytes written at each tick
 *   config1  bit 0: in overwrite mode the head is an offset in the area (as for Intel PT), else a count that only grows (as for Arm's TMC)
 *            bit 1: bytes that do not fit are cut and the pattern does not skip them (see below), else it continues after them
 *            bits 8-15: every n-th output loses bytes although there is space, like an overflow; 0: none
 *            bits 16-31: number of bytes lost by each of these
 *   config2  period in ns (default 100 us)
 *
 * The pattern: byte k of an event's stream is byte k % 8, little endian, of (k / 8) * PTD_AUX_FACTOR ^ (cpu << 56). Lost bytes count too: after
 * them k has grown by their number, and the output that they belong to has PERF_AUX_FLAG_TRUNCATED.
 *
 * When an area is freed, its totals are written to the kernel's log: "ptd_aux_test: area cpu 0 written 1000 lost 24 outputs 3".
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <asm/unaligned.h>

#define PTD_AUX_FACTOR 0x9e3779b97f4a7c15ULL
#define PTD_AUX_PERIOD_NS 100000
#define PTD_AUX_LEAST_NS 20000

struct aux_buffer {
	void **pages;
	int nr_pages;
	bool overwrite;
	int cpu; /* of the event; -1: of a thread */
	u64 next; /* byte of the pattern that is written next */
	u64 outputs, written, lost;
};

struct aux_unit {
	struct perf_output_handle handle; /* handle.event is set while output is open */
	struct hrtimer timer;
	struct perf_event *event;
	u64 written; /* since output was begun */
};

static DEFINE_PER_CPU(struct aux_unit, aux_units);
static struct pmu aux_pmu;
static atomic64_t aux_ticks, aux_outputs, aux_refused;

static u64 period_of(struct perf_event *event)
{
	u64 wanted = event->attr.config2;

	return wanted ? max_t(u64, wanted, PTD_AUX_LEAST_NS) : PTD_AUX_PERIOD_NS;
}

static u64 pattern_word(u64 number, u64 cpu)
{
	return number * PTD_AUX_FACTOR ^ cpu << 56;
}

static void write_bytes(struct aux_buffer *buffer, u64 head, u64 bytes)
{
	u64 size = (u64)buffer->nr_pages << PAGE_SHIFT, cpu = smp_processor_id();

	while (bytes) {
		u64 at = head & (size - 1), in_page = at & (PAGE_SIZE - 1), step = 1;
		u8 *to = (u8 *)buffer->pages[at >> PAGE_SHIFT] + in_page;
		u64 word = pattern_word(buffer->next / 8, cpu);

		if (buffer->next % 8 == 0 && bytes >= 8 && in_page <= PAGE_SIZE - 8) {
			put_unaligned(word, (u64 *)to);
			step = 8;
		} else {
			*to = (u8)(word >> (8 * (buffer->next % 8)));
		}
		buffer->next += step;
		buffer->written += step;
		head += step;
		bytes -= step;
	}
}

static void end_output(struct aux_unit *unit, struct aux_buffer *buffer)
{
	struct perf_output_handle *handle = &unit->handle;
	u64 size = (u64)buffer->nr_pages << PAGE_SHIFT, written = unit->written;

	if (buffer->overwrite) {
		handle->head += written;
		if (unit->event->attr.config1 & 1)
			handle->head &= size - 1;
		if (written > size)
			written = size;
	}
	unit->written = 0;
	buffer->outputs++;
	atomic64_inc(&aux_outputs);
	perf_aux_output_end(handle, written);
	handle->event = NULL;
}

/* Returns false if there is no space, and then the core stops the event. */
static bool begin_output(struct aux_unit *unit)
{
	if (perf_aux_output_begin(&unit->handle, unit->event))
		return true;
	atomic64_inc(&aux_refused);
	unit->handle.event = NULL;
	return false;
}

/*
 * Returns whether the software has to update the output now: at the watermark, at the end, and one page before it, so that space freed in
 * the meantime is noticed (as in pt_buffer_reset_markers()).
 */
static bool look_is_due(const struct aux_unit *unit)
{
	const struct perf_output_handle *handle = &unit->handle;
	u64 head = handle->head + unit->written;

	if (head >= handle->wakeup || unit->written >= handle->size)
		return true;
	return handle->size > PAGE_SIZE && unit->written >= handle->size - PAGE_SIZE;
}

static void lose(struct aux_buffer *buffer, u64 bytes)
{
	buffer->next += bytes;
	buffer->lost += bytes;
}

/* Writes what the hardware would write between two updates by the software. */
static void produce(struct aux_unit *unit, struct aux_buffer *buffer)
{
	u64 config1 = unit->event->attr.config1, wanted = unit->event->attr.config;
	u64 every = (config1 >> 8) & 0xff, lost = (config1 >> 16) & 0xffff;
	u64 room = buffer->overwrite ? wanted : unit->handle.size - unit->written;
	u64 bytes = min(wanted, room);

	write_bytes(buffer, unit->handle.head + unit->written, bytes);
	unit->written += bytes;
	if (bytes < wanted) {
		perf_aux_output_flag(&unit->handle, PERF_AUX_FLAG_TRUNCATED);
		if (!(config1 & 2))
			lose(buffer, wanted - bytes);
	} else if (every && buffer->outputs % every == every - 1) {
		perf_aux_output_flag(&unit->handle, PERF_AUX_FLAG_TRUNCATED);
		lose(buffer, lost);
		end_output(unit, buffer);
		(void)begin_output(unit);
	}
}

static enum hrtimer_restart aux_tick(struct hrtimer *timer)
{
	struct aux_unit *unit = container_of(timer, struct aux_unit, timer);
	struct perf_output_handle *handle = &unit->handle;
	struct aux_buffer *buffer;

	atomic64_inc(&aux_ticks);
	if (!unit->event || !handle->event)
		return HRTIMER_NORESTART;
	buffer = perf_get_aux(handle);
	if (!buffer)
		return HRTIMER_NORESTART;
	produce(unit, buffer);
	if (!handle->event)
		return HRTIMER_NORESTART;
	if (!buffer->overwrite && look_is_due(unit)) {
		end_output(unit, buffer);
		if (!begin_output(unit))
			return HRTIMER_NORESTART;
	}
	hrtimer_forward_now(timer, ns_to_ktime(period_of(unit->event)));
	return HRTIMER_RESTART;
}

static void aux_start(struct perf_event *event, int flags)
{
	struct aux_unit *unit = this_cpu_ptr(&aux_units);

	unit->event = event;
	unit->written = 0;
	if (!begin_output(unit)) {
		event->hw.state = PERF_HES_STOPPED;
		return;
	}
	event->hw.state = 0;
	hrtimer_start(&unit->timer, ns_to_ktime(period_of(event)), HRTIMER_MODE_REL_PINNED_HARD);
}

static void aux_stop(struct perf_event *event, int flags)
{
	struct aux_unit *unit = this_cpu_ptr(&aux_units);
	struct aux_buffer *buffer;

	event->hw.state |= PERF_HES_STOPPED;
	hrtimer_cancel(&unit->timer);
	buffer = unit->handle.event ? perf_get_aux(&unit->handle) : NULL;
	if (buffer)
		end_output(unit, buffer);
}

static int aux_add(struct perf_event *event, int flags)
{
	struct aux_unit *unit = this_cpu_ptr(&aux_units);

	if (unit->event)
		return -EBUSY;
	event->hw.state = PERF_HES_STOPPED;
	if (flags & PERF_EF_START) {
		aux_start(event, 0);
		if (event->hw.state & PERF_HES_STOPPED) {
			unit->event = NULL;
			return -EINVAL;
		}
	}
	unit->event = event;
	return 0;
}

static void aux_del(struct perf_event *event, int flags)
{
	aux_stop(event, PERF_EF_UPDATE);
	this_cpu_ptr(&aux_units)->event = NULL;
}

static void aux_read(struct perf_event *event)
{
}

static void *aux_setup(struct perf_event *event, void **pages, int nr_pages, bool overwrite)
{
	struct aux_buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);

	if (!buffer)
		return NULL;
	buffer->pages = pages;
	buffer->nr_pages = nr_pages;
	buffer->overwrite = overwrite;
	buffer->cpu = event->cpu;
	return buffer;
}

static void aux_free(void *aux)
{
	struct aux_buffer *buffer = aux;

	pr_info("area cpu %d written %llu lost %llu outputs %llu\n", buffer->cpu, buffer->written, buffer->lost, buffer->outputs);
	kfree(buffer);
}

static int aux_event_init(struct perf_event *event)
{
	if (event->attr.type != aux_pmu.type)
		return -ENOENT;
	if (!event->attr.config || event->attr.config > SZ_1M)
		return -EINVAL;
	return 0;
}

PMU_FORMAT_ATTR(bytes, "config:0-31");
PMU_FORMAT_ATTR(place, "config1:0");
PMU_FORMAT_ATTR(silent, "config1:1");
PMU_FORMAT_ATTR(lose_every, "config1:8-15");
PMU_FORMAT_ATTR(lose_bytes, "config1:16-31");
PMU_FORMAT_ATTR(period_ns, "config2:0-31");

static struct attribute *aux_format[] = {
	&format_attr_bytes.attr, &format_attr_place.attr, &format_attr_silent.attr, &format_attr_lose_every.attr,
	&format_attr_lose_bytes.attr, &format_attr_period_ns.attr, NULL,
};
static const struct attribute_group aux_format_group = { .name = "format", .attrs = aux_format };

static ssize_t counts_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "ticks %lld outputs %lld refused %lld\n", (long long)atomic64_read(&aux_ticks),
			  (long long)atomic64_read(&aux_outputs), (long long)atomic64_read(&aux_refused));
}
static DEVICE_ATTR_RO(counts);
static struct attribute *aux_info[] = { &dev_attr_counts.attr, NULL };
static const struct attribute_group aux_info_group = { .attrs = aux_info };
static const struct attribute_group *aux_groups[] = { &aux_format_group, &aux_info_group, NULL };

static struct pmu aux_pmu = {
	.module = THIS_MODULE,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.task_ctx_nr = perf_sw_context,
	.attr_groups = aux_groups,
	.event_init = aux_event_init,
	.add = aux_add,
	.del = aux_del,
	.start = aux_start,
	.stop = aux_stop,
	.read = aux_read,
	.setup_aux = aux_setup,
	.free_aux = aux_free,
};

static int __init aux_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct hrtimer *timer = &per_cpu(aux_units, cpu).timer;

		hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = aux_tick;
	}
	return perf_pmu_register(&aux_pmu, "ptd_aux_test", -1);
}

static void __exit aux_exit(void)
{
	perf_pmu_unregister(&aux_pmu);
}

module_init(aux_init);
module_exit(aux_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A PMU that writes a pattern into its AUX area");
