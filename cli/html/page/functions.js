// The table of functions, and the latencies of a chosen one.
const shellWord = (text) => "'" + text.replace(/'/g, "'\\''") + "'";

function latencyPicture(row, latencies) {
  const width = 960, height = 240, left = 70, top = 26, base = height - 40, most = Math.max(...latencies.map((each) => each[2]));
  const start = latencies[0][0], end = latencies[latencies.length - 1][1];
  const first = Math.log2(Math.max(1, start)), last = Math.log2(Math.max(2, end));
  const x = (ns) => left + (Math.log2(Math.max(1, ns)) - first) / Math.max(1e-9, last - first) * (width - left - 20);
  const y = (calls) => base - Math.log1p(calls) / Math.log1p(most) * (base - top);
  const picture = svg('svg', {viewBox: '0 0 ' + width + ' ' + height, class: 'latency', role: 'img',
    'aria-label': 'Histogram of the durations of ' + row.function + '; the table below has the same data'});
  const level = (calls) => picture.append(svg('line', {x1: left, x2: width - 20, y1: y(calls), y2: y(calls), class: 'grid'}),
    svg('text', {x: left - 6, y: y(calls) + 4, 'text-anchor': 'end', class: 'axis', text: count(calls)}));
  for (let calls = 1; calls <= most; calls *= 10) level(calls);
  for (const [from, to, calls] of latencies) {
    picture.append(svg('rect', {x: x(from), y: Math.min(y(calls), base - 2), width: Math.max(1.5, x(to) - x(from) - 1), height: Math.max(2, base - y(calls)), class: 'bar'},
      svg('title', {text: duration(from) + ' to ' + duration(to) + ': ' + many(calls, 'call')})));
  }
  picture.append(svg('line', {x1: left, x2: width - 20, y1: base, y2: base, class: 'axis-line'}));
  for (let ns = 1; ns <= end; ns *= 10) {
    if (ns >= start) picture.append(svg('text', {x: x(ns), y: base + 18, 'text-anchor': 'middle', class: 'axis', text: duration(ns)}));
  }
  // The upper of two names that are close together.
  const marks = [['p50', row.p50_ns], ['p99', row.p99_ns]].filter(([, ns]) => ns >= start && ns <= end);
  marks.forEach(([name, ns], i) => picture.append(svg('line', {x1: x(ns), x2: x(ns), y1: top - 6, y2: base, class: 'mark'}),
    svg('text', {x: x(ns) + 4, y: i && x(ns) - x(marks[0][1]) < 40 ? top - 14 : top - 2, class: 'axis', text: name})));
  picture.append(svg('text', {x: left, y: height - 4, class: 'axis', text: 'duration of a call (logarithmic); height: number of calls (logarithmic)'}));
  return picture;
}

function showLatency(index, target) {
  const row = data.functions.rows[index], detail = data.functions.details[index];
  const parts = [el('h3', {text: 'Latency of ' + row.function})];
  if (!detail) {
    parts.push(el('p', {text: 'The page has no histogram of this function: it has those of the functions with the most self time and the longest calls.'}));
  } else {
    const calls = detail.latencies.reduce((sum, each) => sum + each[2], 0);
    if (detail.latencies.length) {
      parts.push(el('p', {text: count(calls) + ' calls seen from start to end; p50 ' + duration(row.p50_ns || 0) + ', p99 ' + duration(row.p99_ns || 0) +
        ', longest ' + duration(row.max_ns || 0)}), el('div', {class: 'picture', tabindex: '0', role: 'group', 'aria-label': 'Picture of the histogram'}, latencyPicture(row, detail.latencies)),
      details('The histogram as a table', table('Durations of ' + row.function, [
        {title: 'from', value: (each) => each[0], text: (each) => duration(each[0]), number: true},
        {title: 'to below', value: (each) => each[1], text: (each) => duration(each[1]), number: true},
        {title: 'calls', value: (each) => each[2], text: (each) => count(each[2]), number: true}], detail.latencies).element));
    }
    parts.push(table('Slowest calls of ' + row.function, [
      {title: 'started', value: (call) => call.start, short: true}, {title: 'took', value: (call) => call.took_ns, number: true,
        text: (call) => (call.estimated ? '~' : '') + duration(call.took_ns) + (call.end_seen ? '' : ' (end not seen)')},
      {title: 'off cpu', value: (call) => call.off_cpu_ns, text: (call) => duration(call.off_cpu_ns), number: true},
      {title: 'not traced', value: (call) => call.untraced_ns, text: (call) => duration(call.untraced_ns), number: true},
      {title: 'thread', value: (call) => call.comm + ' ' + call.tid},
      {title: 'look closer', value: () => '', node: (call) => command('script --call-trace --tid ' + call.tid + ' --time ' + call.start + ',' + call.end), wide: true}],
    detail.slowest).element);
  }
  parts.push(el('p', {}, 'More calls: ', command('functions --func ' + shellWord(row.function) + ' --slowest 20')));
  target.replaceChildren(...parts);
  say(parts[0].textContent);
}

function showFunctions() {
  const functions = data.functions, part = section('functions', 'Functions');
  if (!functions.rows.length) {
    part.append(el('p', {text: 'No call was decoded.'}));
    return;
  }
  const chosen = el('div', {id: 'latency', role: 'region', 'aria-label': 'Latency of the chosen function'});
  const time = (title, field) => ({title, value: (row) => row[field] || 0, number: true,
    text: (row) => row[field] === null ? '-' : (row.estimated && /^(self|total)_ns$/.test(field) ? '~' : '') + duration(row[field])});
  const amount = (title, field) => ({title, value: (row) => row[field], text: (row) => count(row[field]), number: true});
  const share = (field) => ({title: '%', value: (row) => row[field], text: (row) => percent(row[field], functions.all_self), number: true});
  const waiting = (row) => row.off_cpu_ns + row.untraced_ns + row.lost_ns;
  const name = {title: 'function', value: (row) => row.function, node: (row, index) => el('button', {type: 'button', class: 'function', text: row.function,
    'aria-label': row.function + (data.functions.details[index] ? ': show latencies' : ': no histogram'), onclick: () => {
      showLatency(index, chosen);
      chosen.scrollIntoView({block: 'nearest'});
    }})};
  const columns = functions.timed
    ? [name, {title: 'module', value: (row) => row.module}, amount('calls', 'calls'), time('self', 'self_ns'), share('self_ns'), time('total', 'total_ns'),
      {title: 'waiting', value: waiting, text: (row) => waiting(row) ? duration(waiting(row)) : '-', number: true},
      time('p50', 'p50_ns'), time('p99', 'p99_ns'), time('longest', 'max_ns')]
    : [name, {title: 'module', value: (row) => row.module}, amount('calls', 'calls'), amount('self instructions', 'self_instructions'),
      share('self_instructions'), amount('total instructions', 'total_instructions')];
  const made = table('Functions', columns, functions.rows, {sorts: true, sorted: 3});
  made.element.classList.add('tall');
  part.append(el('p', {class: 'note', text: 'Self excludes callees. Total includes them and all waiting. Waiting is time off the cpu, not traced, or lost. ' +
    'Choose a function to see its latencies.'}), search('Search functions', made, (row) => row.function + ' ' + row.module).element, made.element, chosen);
  const first = Object.keys(functions.details).map(Number).sort((a, b) => a - b)[0];
  if (first !== undefined) showLatency(first, chosen);
}
