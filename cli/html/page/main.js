showRecording();
showTotals();
showTimeline();
showFunctions();
showFlame();
showImage();
showMissing();
showFindings();
if (data.span.dated) chooseBin(0);
// Paper has no buttons: what is folded is printed open.
let folded = [];
window.addEventListener('beforeprint', () => {
  folded = [...document.querySelectorAll('details:not([open])')];
  for (const each of folded) each.open = true;
});
window.addEventListener('afterprint', () => {
  for (const each of folded) each.open = false;
});
