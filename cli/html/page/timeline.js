// What ran when: one row for each stream and thread, the darker the more instructions; gaps, interrupts and changes of code below.
const cursors = [];  // functions that move a line to a bin
let chosenBin = 0;
function chooseBin(bin) {
  chosenBin = Math.max(0, Math.min(data.density.bins - 1, bin));
  for (const move of cursors) move(chosenBin);
}
// A slider for the moment that all pictures mark.
function momentSlider(label) {
  const slider = el('input', {type: 'range', min: 0, max: data.density.bins - 1, value: 0, oninput: () => chooseBin(Number(slider.value))});
  cursors.push((bin) => {
    slider.value = bin;
    slider.setAttribute('aria-valuetext', binTime(bin) + ' s');
  });
  return el('label', {}, label + ' ', slider);
}
function peak(bins) {
  let at = 0;
  bins.forEach((value, i) => { if (value > bins[at]) at = i; });
  return at;
}
// One row of bins as rectangles. Equal neighbours share one, so that long recordings stay small.
function strip(row, y, height, width, left, colour) {
  const most = Math.max(1, ...row.bins), step = width / row.bins.length;
  const group = svg('g', {class: colour});
  row.bins.forEach((value, i) => {
    if (value) group.append(svg('rect', {x: left + i * step, y, width: step + 0.2, height, opacity: (0.25 + 0.75 * Math.sqrt(value / most)).toFixed(2)}));
  });
  return group;
}
function showTimeline() {
  const part = section('timeline', 'Timeline');
  if (!data.span.dated) {
    part.append(el('p', {text: 'The trace contains no time: nothing can be laid along a line.'}));
    if (data.density.rows.length) part.append(table('Streams and threads', [{title: 'row', value: (row) => row.name}, {title: 'instructions',
      value: (row) => row.instructions, text: (row) => count(row.instructions), number: true}], data.density.rows, {sorts: true}).element);
    return;
  }
  const rows = [], number = (row) => Number((row.name.match(/^cpu (\d+)$/) || [0, Infinity])[1]);
  const ordered = [...data.density.rows].sort((a, b) => a.kind === 'stream' && b.kind === 'stream' && number(a) !== number(b) ? number(a) - number(b) : 0);
  for (const row of ordered) rows.push({name: row.name, bins: row.bins, all: row.instructions, what: 'instructions', colour: row.kind});
  const streams = data.density.rows.filter((row) => row.kind === 'stream');
  const total = (field) => Array.from({length: data.density.bins}, (_, i) => streams.reduce((sum, row) => sum + row[field][i], 0));
  const sums = [['gaps', 'gap_bins', 'gap'], ['interrupts', 'interrupt_bins', 'interrupt']];
  for (const [what, field, colour] of sums) rows.push({name: what, bins: total(field), all: streams.reduce((sum, row) => sum + row[what], 0), what, colour});
  for (const mark of data.image.marks) rows.push({name: mark.name, bins: mark.bins, all: mark.all, what: 'changes', colour: 'change'});
  const left = 230, width = 960, height = 20, top = 26;
  const picture = svg('svg', {viewBox: '0 0 ' + (left + width + 10) + ' ' + (top + rows.length * height + 10), class: 'timeline', role: 'img',
    'aria-label': 'Timeline of ' + rows.length + ' rows; the table below has the same data, and the slider above reads out one moment'});
  const end = top + rows.length * height;
  [0, 0.25, 0.5, 0.75, 1].forEach((share) => picture.append(svg('line', {x1: left + share * width, x2: left + share * width, y1: 20, y2: end, class: 'grid'}),
    svg('text', {x: left + share * width, y: 16, class: 'axis', 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle',
      text: '+' + duration(share * data.span.length_ns)})));
  rows.forEach((row, i) => {
    const y = top + i * height;
    const name = row.name.length > 30 ? row.name.slice(0, 29) + '…' : row.name;
    picture.append(svg('rect', {x: left, y: y + 1, width, height: height - 3, class: 'track'}),
      svg('text', {x: left - 8, y: y + 14, 'text-anchor': 'end', class: 'label', text: name}, svg('title', {text: row.name})),
      strip(row, y + 1, height - 3, width, left, row.colour));
  });
  const line = svg('line', {y1: top - 6, y2: top + rows.length * height, class: 'cursor'});
  picture.append(line);
  picture.addEventListener('click', (event) => {
    const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * (left + width + 10);
    chooseBin(Math.floor((x - left) / width * data.density.bins));
  });
  const control = momentSlider('Moment'), slider = control.querySelector('input');
  const what = el('p', {class: 'moment', 'aria-live': 'polite', id: 'moment-text'}), next = el('p', {id: 'moment-command'});
  cursors.push((bin) => {
    const x = left + (bin + 0.5) / data.density.bins * width;
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
    const busy = rows.filter((row) => row.bins[bin]).map((row) => row.name + ': ' + count(row.bins[bin]) + ' ' + row.what);
    const text = binTime(bin) + ' s to ' + binTime(bin + 1) + ' s: ' + (busy.slice(0, 12).join('; ') || 'nothing') +
      (busy.length > 12 ? '; and ' + (busy.length - 12) + ' more' : '');
    slider.setAttribute('aria-valuetext', text);
    what.textContent = text;
    next.replaceChildren('Look closer: ', command('script --call-trace --time ' + binTime(bin) + ',' + binTime(bin + 1)));
  });
  part.append(el('p', {class: 'controls'}, control), what, next,
    el('p', {class: 'legend'}, ...[['stream', 'traces'], ['thread', 'threads'], ['gap', 'gaps'], ['interrupt', 'interrupts'], ['change', 'changes of code']].flatMap(
      ([kind, text]) => [el('span', {class: 'key ' + kind, text}), ' '])),
    el('div', {class: 'picture', tabindex: '0', role: 'group', 'aria-label': 'Picture of the timeline'}, picture), el('p', {class: 'note', text: 'Each part is ' + duration(data.span.length_ns / data.density.bins) + ' wide; the darker, the more (on a scale of its own in each row). Flow after ' +
      'the last sync point of the trace counts in the last part.'}),
    details('The timeline as a table', table('Timeline', [
      {title: 'row', value: (row) => row.name}, {title: 'what', value: (row) => row.what},
      {title: 'total', value: (row) => row.all, text: (row) => count(row.all), number: true},
      {title: 'busiest from', value: (row) => row.bins[peak(row.bins)] ? binTime(peak(row.bins)) : ''},
      {title: 'there', value: (row) => row.bins[peak(row.bins)], text: (row) => count(row.bins[peak(row.bins)]), number: true}], rows, {sorts: true}).element),
    el('p', {}, 'Every call on a timeline, for ui.perfetto.dev: ', command('timeline -o run.pftrace')));
}
