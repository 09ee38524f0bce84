import type { IncomingMessage } from 'node:http';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { RequestDeadline } from './request-deadline.js';

const limits = { headersTimeoutMs: 1_000, requestTimeoutMs: 3_000 };

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** The deadline of a connection that is being read until a test pauses it. */
function deadline() {
  const state = { isReading: true, missedCount: 0 };
  const watched = new RequestDeadline(
    limits,
    () => state.isReading,
    () => state.missedCount++,
  );
  return { state, watched };
}

const request = (complete: boolean): IncomingMessage => ({ complete }) as IncomingMessage;

test('a request that is late while it is read is refused at once, and leaves no timer', () => {
  const { state, watched } = deadline();
  watched.watch(request(false));
  expect([state.missedCount, vi.getTimerCount()]).toEqual([1, 0]);
});

test.each([
  ['headers', undefined, 1_000],
  ['body', request(false), 3_000],
])(
  'the %s of a request get their whole time after reading resumes, and not a millisecond more',
  (_what, late, timeoutMs) => {
    const { state, watched } = deadline();
    state.isReading = false;
    watched.watch(late);
    vi.advanceTimersByTime(60_000);
    state.isReading = true;
    watched.resumed();
    vi.advanceTimersByTime(timeoutMs - 1);
    expect(state.missedCount).toBe(0);
    vi.advanceTimersByTime(1);
    expect([state.missedCount, vi.getTimerCount()]).toEqual([1, 0]);
  },
);

test('a request whose headers have been read gets the time for its body', () => {
  const { state, watched } = deadline();
  state.isReading = false;
  watched.watch(request(true));
  state.isReading = true;
  watched.resumed();
  const late = { complete: false };
  watched.headersRead(late as IncomingMessage);
  watched.headersRead(request(true));
  vi.advanceTimersByTime(2_999);
  expect(state.missedCount).toBe(0);
  vi.advanceTimersByTime(1);
  expect(state.missedCount).toBe(1);
});

test('a late request that has been completed meanwhile is not refused, nor are later ones', () => {
  const { state, watched } = deadline();
  state.isReading = false;
  const late = { complete: false };
  watched.watch(late as IncomingMessage);
  state.isReading = true;
  watched.resumed();
  late.complete = true;
  vi.advanceTimersByTime(60_000);
  watched.resumed();
  vi.advanceTimersByTime(60_000);
  expect([state.missedCount, vi.getTimerCount()]).toEqual([0, 0]);
});

test('however often reading is resumed, there is one timer, and none once the watch ends', () => {
  const { state, watched } = deadline();
  state.isReading = false;
  watched.watch(undefined);
  state.isReading = true;
  for (let resumed = 0; resumed < 5; resumed++) watched.resumed();
  expect(vi.getTimerCount()).toBe(1);
  watched.end();
  expect(vi.getTimerCount()).toBe(0);
  watched.resumed();
  vi.advanceTimersByTime(60_000);
  expect([state.missedCount, vi.getTimerCount()]).toEqual([0, 0]);
});
