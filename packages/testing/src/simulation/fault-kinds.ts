/** What can happen to processes and databases as a whole. */
export const nemesisKinds = [
  'kill',
  'pause',
  'clock-jump',
  'outage',
  'partition',
  'failover',
  'lossy-failover',
  'operator-pause',
  'operator-replay',
  'notification',
  'fewer-shards',
  'stop',
  'rollout',
] as const;

export type NemesisKind = (typeof nemesisKinds)[number];

/** What can happen on one way to a database or back. */
export const passageFaultKinds = [
  'slow',
  'deadlock',
  'lock-wait',
  'unavailable',
  'request-lost',
  'answer-lost',
  'late-commit',
  'silent',
  'crash-before',
  'crash-after',
] as const;

export type PassageFaultKind = (typeof passageFaultKinds)[number];

/** What can go wrong in a run. */
export type FaultKind = NemesisKind | PassageFaultKind;
