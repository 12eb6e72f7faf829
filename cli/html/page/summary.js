// What the recording is, totals, missing code and findings: the numbers of 'info', 'stat' and 'check'.
function streamName(stream) {
  return stream.cpu >= 0 ? 'cpu ' + stream.cpu : stream.tid >= 0 ? 'tid ' + stream.tid : stream.source || 'stream';
}
const gapCount = (stream) => Object.values(stream.gaps).reduce((sum, gap) => sum + gap.count, 0);

function showRecording() {
  const info = data.info;
  document.getElementById('title').textContent = data.recording.replace(/\/+$/, '').split('/').pop() || data.recording;
  document.getElementById('subtitle').textContent = [info.form, info.trace, data.span.dated ? duration(data.span.length_ns) + ' of trace' : '',
    'ptdecode ' + data.version].filter(Boolean).join(' · ');
  const traced = [info.traces_user ? 'user' : '', info.traces_kernel ? 'kernel' : ''].filter(Boolean).join(' and ');
  const found = info.images.filter((image) => image.found).length;
  const part = section('recording', 'The recording', facts([
    ['file', data.recording], [info.form === 'bundle' ? 'made from' : info.form.includes('perf') ? 'made by' : 'description', (info.command || []).join(' ')], ['host', info.hostname], ['kernel', info.kernel], ['cpu', info.cpu || info.cpuid],
    ['perf', info.perf_version], ['traced', info.streams.length ? traced + (info.filter ? ', filter ' + info.filter : '') : 'no trace'],
    ['timing packets', info.timing],
    ['time', data.span.dated ? data.span.first + ' to ' + data.span.last + ' s' : 'the trace contains no time'], ['clock', info.clock],
    ['trace', bytes(info.trace_bytes) + ' in ' + info.streams.length + (info.streams.length === 1 ? ' stream' : ' streams')],
    ['threads', count(info.threads.length)],
    ['code files', info.images.length ? found + ' found, ' + (info.images.length - found) + ' missing' : info.form === 'bundle' ? 'in the bundle' : 'none']]));
  if (info.warnings && info.warnings.length) part.append(el('h3', {text: 'Warnings'}), el('ul', {}, ...info.warnings.map((text) => el('li', {text}))));
  if (info.threads.length) {
    part.append(details('Threads', table('Threads', [
      {title: 'name', value: (row) => row.comm || '?'}, {title: 'pid', value: (row) => row.pid, text: (row) => String(known(row.pid)), number: true},
      {title: 'tid', value: (row) => row.tid, number: true}], info.threads, {sorts: true}).element));
  }
  if (data.cuts.length) part.append(el('h3', {text: 'What this page leaves out'}), el('ul', {}, ...data.cuts.map((text) => el('li', {text}))));
}

function showTotals() {
  const streams = data.stat.streams, sum = (field) => data.density.rows.filter((row) => row.kind === 'stream').reduce((all, row) => all + row[field], 0);
  const uncertain = streams.reduce((all, stream) => all + stream.uncertain_instructions, 0);
  const tile = (id, value, what) => el('li', {id}, el('strong', {text: value}), ' ' + what);
  const part = section('totals', 'Totals', el('ul', {class: 'tiles'}, tile('all-instructions', count(sum('instructions')), 'instructions'),
    tile('all-uncertain', count(uncertain), 'uncertain'), tile('all-gaps', count(sum('gaps')), sum('gaps') === 1 ? 'gap' : 'gaps'),
    tile('all-interrupts', count(sum('interrupts')), 'interrupts and faults'), tile('all-changes', count(data.image.all_changes), 'changes of code'),
    tile('all-findings', count(data.findings.length), data.findings.length === 1 ? 'finding' : 'findings')));
  part.append(el('p', {class: 'note', text: 'Uncertain: several versions of the code fit the packets (ambiguous), or the code may be wrong ' +
    '(suspect). Gap: flow is missing.'}));
  if (!streams.length) return;
  part.append(table('Streams of trace', [
    {title: 'stream', value: streamName}, {title: 'bytes', value: (row) => row.bytes, text: (row) => count(row.bytes), number: true},
    {title: 'instructions', value: (row) => row.instructions, text: (row) => count(row.instructions), number: true},
    {title: 'blocks', value: (row) => row.blocks, text: (row) => count(row.blocks), number: true},
    {title: 'uncertain', value: (row) => row.uncertain_instructions, text: (row) => count(row.uncertain_instructions), number: true},
    {title: 'gaps', value: gapCount, text: (row) => count(gapCount(row)), number: true}],
  [...streams].sort((a, b) => a.cpu >= 0 && b.cpu >= 0 ? a.cpu - b.cpu : 0), {sorts: true}).element);
  const reasons = {};
  for (const stream of streams) {
    for (const [reason, gap] of Object.entries(stream.gaps)) {
      reasons[reason] = reasons[reason] || {reason, count: 0, lost: 0};
      reasons[reason].count += gap.count;
      reasons[reason].lost += gap.lost_bytes;
    }
  }
  if (Object.keys(reasons).length) {
    part.append(table('Gaps by reason', [{title: 'reason', value: (row) => row.reason}, {title: 'meaning', value: (row) => data.gap_reasons[row.reason] || ''},
      {title: 'gaps', value: (row) => row.count, text: (row) => count(row.count), number: true},
      {title: 'trace bytes skipped', value: (row) => row.lost, text: (row) => count(row.lost), number: true}],
    Object.values(reasons).sort((a, b) => b.count - a.count), {sorts: true}).element);
  }
  part.append(el('p', {}, 'More: ', command('stat')));
}

function showMissing() {
  const part = section('missing', 'Missing code'), list = data.stat.missing_code;
  if (!list.length) {
    part.append(el('p', {text: 'No code is missing where the trace goes.'}));
    return;
  }
  part.append(el('p', {text: 'The flow came to code whose bytes were not found. The last column says how to supply them.'}),
    table('Missing code, largest loss first', [
      {title: 'file', value: (row) => row.path}, {title: 'gaps', value: (row) => row.gaps, text: (row) => count(row.gaps), number: true},
      {title: 'share of trace', value: (row) => row.share, text: (row) => row.share === 0 ? '-' : row.share < 0.001 ? '< 0.1 %' : (100 * row.share).toFixed(1) + ' %', number: true},
      {title: 'why', value: (row) => row.reason}, {title: 'what to do', value: (row) => row.supply}], list).element);
}

function showFindings() {
  const part = section('findings', 'Findings');
  if (!data.findings.length) {
    const what = !data.check.has_code ? 'Nothing was compared: no code was found.' : data.info.streams.length
      ? 'No findings: the records, the code and the files agree.' : 'No findings in the records and files; there is no trace to compare them with.';
    part.append(el('p', {text: what}));
  } else {
    part.append(el('ol', {class: 'findings'}, ...data.findings.map((text) => el('li', {text}))));
  }
  for (const text of data.stat.records_lost) part.append(el('p', {text: 'Records lost: ' + text}));
  const flow = data.check.flow;
  if (flow && flow.decoded_bytes < flow.all_bytes)
    part.append(el('p', {class: 'note', text: 'The flow was checked in ' + count(flow.decoded_bytes) + ' of ' + count(flow.all_bytes) + ' bytes of trace.'}));
  part.append(el('p', {}, 'More: ', command('check')));
}
