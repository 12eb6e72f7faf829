// A program whose functions V8 compiles, optimizes, moves and frees: node --expose-gc -r ./node_announcer.node work.js [ROUNDS]
// With --always-sparkplug --stress-compaction, V8 generates code at once and moves it in each collection.
'use strict';
const rounds = Number(process.argv[2] || 6);
let kept = [];
let sum = 0;

/// A loop with branches that differ from round to round, and long code after it.
function make(round) {
  const lines = [];
  for (let i = 0; i < 500; ++i) lines.push(`  s = s * ${round + i} % 65521 + k;`);
  return new Function('n', 'k', `let s = 0;
for (let i = 0; i < n; ++i) {
  if (i % ${round + 2} === 0) s += k; else if (i % 3 === 1) s -= i; else s += 1;
}
if (k % 8 === 0) {
${lines.join('\n')}
}
return s;`);
}

async function work() {
  for (let round = 1; round <= rounds; ++round) {
    const f = make(round);
    for (let k = 0; k < 30; ++k) sum = (sum + f(50, k)) % 1000003;
    sum += `a${round}b22c333`.replace(new RegExp(`[0-9]{1,${round}}`, 'g'), (digits) => String(digits.length * round)).length;
    kept.push(f);
    if (round % 3 === 0) {
      kept = kept.filter((_, i) => i % 3 === 0);
      // From a task of its own: V8 moves no code of a page where a function on the stack has its code.
      await global.gc({execution: 'async', type: 'major'});
      for (const old of kept) sum = (sum + old(20, round)) % 1000003;
    }
  }
  console.log(sum);
}
work();
