import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
  type SpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { WebhookReceiver } from './webhook-receiver.js';

const exporter = new InMemorySpanExporter();
/** The step of each span in which this processor throws. */
let failsIn: 'onStart' | 'onEnd' | undefined;
const failIn = (step: 'onStart' | 'onEnd') => () => {
  if (failsIn === step) throw new Error('the processor has a bug');
};
const failing: SpanProcessor = {
  onStart: failIn('onStart'),
  onEnd: failIn('onEnd'),
  forceFlush: () => Promise.resolve(),
  shutdown: () => Promise.resolve(),
};
const provider = new TracerProvider({ spanProcessors: [failing, new SimpleSpanProcessor({ exporter })] });
trace.setGlobalTracerProvider(provider);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
const traceId = 'a'.repeat(32);
const callerSpan = 'b'.repeat(16);

const partner = new WebhookReceiver();
let running: TestService;
beforeAll(async () => {
  await partner.open();
  const relay = { name: 'events-to-partner', 'start-from': 'beginning', webhooks: partner.section };
  running = await startTestService({ relay: [relay] });
});
afterAll(async () => {
  await stopTestService(running);
  await partner.close();
  await provider.shutdown();
});

test('a deposit is one trace, from the request through the log to its handler and the message of a relay', async () => {
  const { id } = await running.client.openWallet();
  await running.client.send(`/wallets/${id}/deposit`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', traceparent: `00-${traceId}-${callerSpan}-01` },
    body: '{"amount":"5","recipient":"bob@example.com"}',
  });
  const expected = [
    'POST /wallets/:id/deposit',
    '  execute WalletDepositMoneyAction',
    '    perform',
    '      read Wallet',
    '    persist',
    '    deliver WalletMoneyDepositedEvent',
    '      handle notify-recipient-on-deposit',
    '        execute NotifyRecipientAction',
    '          perform',
    '          persist',
  ];
  await expect.poll(() => tree(callerSpan), { timeout: 10_000 }).toEqual(expect.arrayContaining(expected));
  const message = await vi.waitFor(() => partner.received.find(({ type }) => type.includes('Deposited')));
  expect(message?.attributes['traceparent']).toContain(traceId);
});

test.each(['onStart', 'onEnd'] as const)('a span that fails in %s changes no answer', async (step) => {
  const { id } = await running.client.openWallet();
  failsIn = step;
  const deposit = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"amount":"5"}' };
  const { status } = await running.client.send(`/wallets/${id}/deposit`, deposit);
  const { status: missing } = await running.client.send('/nowhere');
  failsIn = undefined;
  expect([status, missing]).toEqual([200, 404]);
});

/** The names of the spans below one, each with its depth. */
function tree(parentId: string, depth = 0): readonly string[] {
  return exporter
    .getFinishedSpans()
    .filter(
      (span: ReadableSpan) =>
        span.spanContext().traceId === traceId && span.parentSpanContext?.spanId === parentId,
    )
    .flatMap((span) => [`${'  '.repeat(depth)}${span.name}`, ...tree(span.spanContext().spanId, depth + 1)]);
}
