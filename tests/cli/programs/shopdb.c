// A database of 4,000 orders and 60 queries, one of them slow: the example of docs/HUNT.md.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDERS 4000
#define BUCKETS 1024

struct order {
  int id, customer, cents;
  struct order *next;  // in its bucket
};
static struct order orders[ORDERS];
static struct order *by_customer[BUCKETS];

struct plan {
  int use_index, customer, least;
};

static void load_orders(void) {
  for (int i = 0; i < ORDERS; i++) {
    struct order *each = &orders[i];
    *each = (struct order){i, i * 7919 % 997, i * 104729 % 90000, by_customer[i * 7919 % 997 % BUCKETS]};
    by_customer[each->customer % BUCKETS] = each;
  }
}

static int column_is(const char *query, const char *name) {
  return strncmp(query, name, strlen(name)) == 0;
}

static struct plan plan_query(const char *query) {
  struct plan plan = {0, -1, 0};
  if (column_is(query, "customer="))
    plan.use_index = 1;
  const char *value = strchr(query, '=') + 1;
  plan.customer = atoi(value);
  const char *least = strstr(query, ">=");
  if (least)
    plan.least = atoi(least + 2);
  return plan;
}

static int index_lookup(struct plan plan) {
  int sum = 0;
  for (struct order *each = by_customer[plan.customer % BUCKETS]; each; each = each->next)
    if (each->customer == plan.customer && each->cents >= plan.least)
      sum += each->cents;
  return sum;
}

static int matches(const struct order *each, struct plan plan) {
  char text[16];
  snprintf(text, sizeof text, "%d", each->customer);
  return atoi(text) == plan.customer && each->cents >= plan.least;
}

static int scan_table(struct plan plan) {
  int sum = 0;
  for (int i = 0; i < ORDERS; i++)
    if (matches(&orders[i], plan))
      sum += orders[i].cents;
  return sum;
}

int run_query(const char *query) {
  struct plan plan = plan_query(query);
  if (plan.use_index)
    return index_lookup(plan);
  return scan_table(plan);
}

int main(void) {
  load_orders();
  long sum = 0;
  for (int i = 0; i < 60; i++) {
    char query[64];
    snprintf(query, sizeof query, i == 41 ? "CUSTOMER=%d cents>=%d" : "customer=%d cents>=%d", i * 13, i * 100);
    sum += run_query(query);
  }
  printf("%ld\n", sum);
  return 0;
}
