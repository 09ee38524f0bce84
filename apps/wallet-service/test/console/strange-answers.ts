import type { Page } from 'playwright-core';

/** A name as it may be: a single word. */
export const longWord: string = 'W'.repeat(60);
/** Text that is markup, turns the direction of what follows, and has a control character. */
const markup = `"><script>alert(1)</script>\u202e\u0007<img src=x onerror=alert(1)> ${longWord}`;
const id = '00000000-0000-4000-8000-000000000001';
const date = '2026-01-02T03:04:05.678Z';

const event = {
  id,
  slot: 1,
  namespace: longWord,
  ordinal: 0,
  actionId: id,
  actionName: longWord,
  actionParams: null,
  principal: longWord,
  headers: { [markup]: markup },
  modelId: `javascript:alert(1)${longWord}`,
  modelName: longWord,
  modelVersion: 1,
  type: longWord,
  payload: {
    [longWord]: longWord,
    markup,
    link: 'javascript:alert(1)',
    nothing: null,
    deep: { list: [markup] },
  },
  startedDate: date,
  createdDate: date,
};
const tracked = {
  event,
  deliveries: [
    { handler: longWord, state: 'dead-letter' },
    { handler: markup, state: 'blocked' },
  ],
  shards: ['0/0'],
};
const place = {
  shards: ['0/0'],
  paused: false,
  // More than a number of JavaScript can have exactly.
  pendingCount: '9007199254740993',
  oldestPendingMs: 1e12,
  blockedCount: 2,
  blockedIsLowerBound: false,
  deadCount: 1,
  deadIsLowerBound: false,
  processes: [],
  freeSlotCount: 0,
};
const groups = [longWord, markup].map((text) => ({
  handler: text,
  errorLine: text,
  count: 1,
  isLowerBound: false,
  exampleEventId: id,
  oldestDate: date,
  shards: ['0/0'],
}));
const snapshot = {
  date,
  consumers: {
    items: [longWord, markup].map((handler) => ({
      handler,
      names: [handler],
      isRelay: false,
      databases: [place],
    })),
    failures: [],
  },
  deadLetters: { items: groups, failures: [] },
  shards: { items: [], failures: [] },
};
const action = { actionParams: null, events: [tracked] };
const audited = { changeId: id, operation: 'skip', actor: longWord, reason: markup, shards: ['0/0'] };
const blocked = { handler: longWord, event, blockedDate: date, attempts: 1, dead: true, error: markup };

/** What the operations answer, by a pattern of their addresses. */
const answers: Readonly<Record<string, object>> = {
  '**/dead-letters*': { items: groups },
  '**/blocked*': { items: [blocked] },
  '**/events?*': { items: [tracked] },
  '**/models/*': { items: [tracked] },
  '**/why/*': {
    kind: 'model',
    sentences: [markup],
    data: { events: [tracked], other: longWord },
    sides: [{ title: longWord, shard: '0/0', fields: { [longWord]: markup } }],
  },
  '**/idempotency-keys*': {
    items: [
      { key: longWord, principal: longWord, namespace: longWord, actionId: id, shards: ['0/0'], action },
    ],
  },
  '**/views/*': { items: [{ id: markup, [longWord]: longWord, object: { a: 1 }, texts: [markup] }] },
  '**/audit*': { items: [{ ...audited, begunDate: date, target: { filter: { errorLine: markup } } }] },
};

/** The screens that show the answers. */
export const strangeScreens: readonly string[] = [
  '#/',
  '#/consumers',
  '#/dead-letters',
  `#/dead-letters?show=dead&handler=${longWord}`,
  '#/events',
  '#/models/x',
  '#/why/x',
  '#/keys?key=x',
  '#/views/transfers',
  '#/audit',
];

/** Answers what the page asks with texts that callers and handlers might have written. */
export async function feedStrange(page: Page): Promise<void> {
  const body = `event: snapshot\ndata: ${JSON.stringify(snapshot)}\n\n`;
  await page.route('**/live', (route) => route.fulfill({ contentType: 'text/event-stream', body }));
  for (const [pattern, answer] of Object.entries(answers))
    await page.route(pattern, (route) => route.fulfill({ json: { failures: [], ...answer } }));
}
