import { ShardIdentifier, ShardUnavailableError } from '@framework/core';
import type { ObservedEvent, Operation } from '@framework/core/adapter';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanStatusCode,
  type Tracer,
  context,
  metrics,
  propagation,
  trace,
} from '@opentelemetry/api';
import {
  AggregationTemporality,
  type DataPoint,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  AlwaysOffSampler,
  InMemorySpanExporter,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';

import { Telemetry } from '../src/index.js';

const shard = ShardIdentifier.of(0, 0);
const execute: Operation = { kind: 'execute', action: 'DepositAction' };
const perform = { kind: 'perform', action: 'DepositAction', attempt: 1 } as const;
const read: Operation = { kind: 'read', model: 'Wallet', count: 1 };
const persist = { kind: 'persist', action: 'DepositAction', shards: [shard], eventCount: 2 } as const;
const publish: Operation = { kind: 'publish', relay: 'events-to-nats', messageCount: 3 };

let spans = new InMemorySpanExporter();
const ended: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
  for (const api of [trace, context, propagation, metrics]) api.disable();
});

/** A telemetry whose SDK keeps the spans in memory. */
function traced(sampler?: Sampler): Telemetry {
  // An exporter that was shut down keeps nothing more.
  spans = new InMemorySpanExporter();
  const spanProcessors = [new SimpleSpanProcessor({ exporter: spans })];
  const provider = new TracerProvider({ spanProcessors, ...(sampler && { sampler }) });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  ended.push(() => provider.shutdown());
  return new Telemetry();
}

/** The names of the finished spans, each behind the name of its parent. */
function tree(): readonly string[] {
  const finished = spans.getFinishedSpans();
  const nameOf = (id: string | undefined) =>
    finished.find((span) => span.spanContext().spanId === id)?.name ?? '';
  return finished.map(({ name, parentSpanContext }) => `${nameOf(parentSpanContext?.spanId)} > ${name}`);
}

const spanOf = (name: string): ReadableSpan => {
  const found = spans.getFinishedSpans().find((span) => span.name === name);
  if (found === undefined) throw new Error(`There is no span ${name}`);
  return found;
};

/** An event that was made in the trace with this digit as its id. */
function eventOf(digit: string): ObservedEvent {
  return {
    id: `event-${digit}`,
    type: 'Deposited',
    modelName: 'Wallet',
    modelId: `wallet-${digit}`,
    headers: { traceparent: `00-${digit.repeat(32)}-${digit.repeat(16)}-01` },
    createdDate: new Date('2026-03-03T03:03:03.333Z'),
  };
}

function throwing(): never {
  throw new Error('the processor has a bug');
}

/** A telemetry whose SDK throws in a method of spans. */
function broken(method: keyof Span, name = ''): Telemetry {
  traced();
  const tracer = trace.getTracerProvider().getTracer('test');
  const startSpan: Tracer['startSpan'] = (title, ...given) => {
    const span = tracer.startSpan(title, ...given);
    return title.startsWith(name) ? Object.assign(span, { [method]: throwing }) : span;
  };
  const bad = Object.assign(Object.create(tracer) as Tracer, { startSpan });
  return new Telemetry({ tracerProvider: { getTracer: () => bad } });
}

function handling(...events: readonly ObservedEvent[]): Operation {
  return { kind: 'handle', handler: 'notify', attempt: 1, isBatch: events.length > 1, events };
}

describe('an observed operation', () => {
  test.each([
    ['with an SDK', () => traced()],
    ['without an SDK', () => new Telemetry()],
  ] as const)('succeeds and fails as it would without telemetry, %s', async (_what, create) => {
    const telemetry = create();
    let calls = 0;
    for (const operation of [execute, perform, read, persist, publish, handling(eventOf('1'))])
      expect(await telemetry.observe(operation, async () => ++calls)).toBe(calls);
    expect(calls).toBe(6);
    const error = new Error('refused');
    await expect(telemetry.observe(execute, () => Promise.reject(error))).rejects.toBe(error);
  });

  test.each(['onStart', 'onEnd'] as const)(
    'has its own outcome if a processor of spans throws in %s',
    async (at) => {
      const noop = { onStart: () => undefined, onEnd: () => undefined };
      const work = { forceFlush: () => Promise.resolve(), shutdown: () => Promise.resolve() };
      trace.setGlobalTracerProvider(
        new TracerProvider({ spanProcessors: [{ ...work, ...noop, [at]: throwing }] }),
      );
      const telemetry = new Telemetry();
      expect(await telemetry.observe(execute, async () => 'done')).toBe('done');
      const error = new Error('refused');
      await expect(telemetry.observe(execute, () => Promise.reject(error))).rejects.toBe(error);
    },
  );

  test('fails with what was thrown, even if that cannot be read', async () => {
    const unreadable = new Proxy(new Error('never seen'), {
      get: () => {
        throw new Error('get');
      },
    });
    let thrown: unknown;
    await traced()
      .observe(execute, () => Promise.reject(unreadable))
      .catch((error: unknown) => {
        thrown = error;
      });
    expect(Object.is(thrown, unreadable)).toBe(true);
    expect(spanOf('execute DepositAction').attributes['error.type']).toBe('_OTHER');
  });

  test('has its span even if it cannot be measured', async () => {
    traced();
    const { meter } = measured();
    meter.createHistogram = () => ({ record: throwing });
    await new Telemetry({ meterProvider: { getMeter: () => meter } }).observe(execute, async () => undefined);
    expect(spanOf('execute DepositAction').ended).toBe(true);
  });

  test.each([
    ['with an SDK', () => traced()],
    ['without an SDK', () => new Telemetry()],
  ] as const)('returns the promise that the operation has returned, %s', async (_what, create) => {
    const telemetry = create();
    for (const operation of [execute, perform, read, persist, publish, handling(eventOf('1'))]) {
      const outcome = Promise.resolve('done');
      expect(telemetry.observe(operation, () => outcome)).toBe(outcome);
      await outcome;
    }
  });

  test('begins once and has its span if the context manager throws before it has begun', async () => {
    const telemetry = traced();
    const manager = new AsyncLocalStorageContextManager().enable();
    const working = manager.with.bind(manager);
    manager.with = () => {
      manager.with = working;
      throw new Error('the context manager has a bug');
    };
    context.disable();
    context.setGlobalContextManager(manager);
    let calls = 0;
    expect(await telemetry.observe(execute, async () => ++calls)).toBe(1);
    expect(spanOf('execute DepositAction').ended).toBe(true);
  });

  test.each<[string, (run: Promise<unknown>) => unknown]>([
    ['never ends', () => new Promise(() => undefined)],
    [
      'ends later',
      async (run) => {
        try {
          return await run;
        } finally {
          await delay(1);
        }
      },
    ],
    ['ends at once', () => Promise.resolve('foreign')],
    ['fails', () => Promise.reject(new Error('foreign'))],
    ['is nothing', () => undefined],
    ['is no promise', () => 42],
    ['cannot be looked at', () => new Proxy({}, { get: throwing })],
    ['is thrown', throwing],
  ])('ends its span as it ends itself, if what a context manager returns %s', async (_what, behave) => {
    traced();
    const manager = new AsyncLocalStorageContextManager().enable();
    const runIn = manager.with.bind(manager);
    manager.with = ((within: Context, run: () => Promise<unknown>) =>
      // The SDK uses it as well, without a span.
      trace.getSpan(within) === undefined
        ? runIn(within, run)
        : behave(runIn(within, run))) as typeof manager.with;
    context.disable();
    context.setGlobalContextManager(manager);
    const { meterProvider, points } = measured();
    const telemetry = new Telemetry({ meterProvider });
    const error = new Error('refused');
    const seen: unknown[] = [];
    const observe = (work: () => Promise<unknown>): Promise<void> =>
      telemetry.observe(execute, work).then(
        (value) => void seen.push(value, spans.getFinishedSpans().length),
        (thrown: unknown) => void seen.push(thrown, spans.getFinishedSpans().length),
      );
    await observe(async () => 'done');
    await observe(() => Promise.reject(error));
    expect(seen).toEqual(['done', 1, error, 2]);
    expect(spans.getFinishedSpans().map(({ status }) => status.code)).toEqual([
      SpanStatusCode.UNSET,
      SpanStatusCode.ERROR,
    ]);
    expect(await points()).toEqual([
      ['framework.execute.duration', { 'framework.action': 'DepositAction' }, 1],
      ['framework.execute.duration', { 'framework.action': 'DepositAction', 'error.type': 'Error' }, 1],
    ]);
  });

  test('leaves no span open if the span of its handler cannot begin', async () => {
    traced();
    const provider = trace.getTracerProvider();
    const tracer = provider.getTracer('test');
    const startSpan: Tracer['startSpan'] = (name, ...given) =>
      name.startsWith('handle') ? throwing() : tracer.startSpan(name, ...given);
    const bad = Object.assign(Object.create(tracer) as Tracer, { startSpan });
    const telemetry = new Telemetry({ tracerProvider: { getTracer: () => bad } });
    expect(await telemetry.observe(handling(eventOf('1')), async () => 'done')).toBe('done');
    expect(tree()).toEqual([expect.stringContaining('deliver')]);
  });

  test.each([
    'setAttribute',
    'setAttributes',
    'setStatus',
    'recordException',
    'addEvent',
    'updateName',
  ] as const)(
    'that fails has its error and all of its spans, even if %s of a span throws',
    async (method) => {
      const telemetry = broken(method);
      const error = new Error('refused');
      await expect(telemetry.observe(execute, () => Promise.reject(error))).rejects.toBe(error);
      const handled = telemetry.observe(handling(eventOf('1')), () => Promise.reject(error));
      await expect(handled).rejects.toBe(error);
      expect(tree()).toEqual([
        ' > execute DepositAction',
        'deliver Deposited > handle notify',
        ' > deliver Deposited',
      ]);
    },
  );

  test('has its outcome and its other spans if a span cannot be ended', async () => {
    const telemetry = broken('end', 'handle');
    const error = new Error('refused');
    expect(await telemetry.observe(handling(eventOf('1')), async () => 'done')).toBe('done');
    await expect(telemetry.observe(handling(eventOf('2')), () => Promise.reject(error))).rejects.toBe(error);
    expect(tree()).toEqual([' > deliver Deposited', ' > deliver Deposited']);
  });

  test('changes no context without an SDK', async () => {
    const telemetry = new Telemetry();
    const before = context.active();
    await telemetry.observe(execute, async () => expect(context.active()).toBe(before));
  });
});

describe('a trace', () => {
  test('has the parts of an execution below it', async () => {
    const telemetry = traced();
    await telemetry.observe(execute, async () => {
      await telemetry.observe(perform, () => telemetry.observe(read, async () => undefined));
      await telemetry.observe(persist, async () => undefined);
    });
    expect(tree()).toEqual([
      'perform > read Wallet',
      'execute DepositAction > perform',
      'execute DepositAction > persist',
      ' > execute DepositAction',
    ]);
    expect(spanOf('persist').attributes).toEqual({
      'framework.shards': ['0,0'],
      'framework.event_count': 2,
    });
  });

  test('that is not sampled has no parts, and says so to what belongs to it', async () => {
    const telemetry = traced(new ParentBasedSampler({ root: new AlwaysOffSampler() }));
    let carried: Record<string, string> = {};
    await telemetry.observe(execute, () =>
      telemetry.observe(perform, async () => propagation.inject(context.active(), (carried = {}))),
    );
    expect(spans.getFinishedSpans()).toEqual([]);
    expect(carried['traceparent']).toMatch(/-00$/);
  });

  test.each([
    ['continues in an execution', '01', ['execute DepositAction']],
    ['has no execution below it', '00', []],
  ] as const)('of a caller elsewhere %s if its flags are %s', async (_what, flags, expected) => {
    const telemetry = traced();
    const caller = propagation.extract(ROOT_CONTEXT, {
      traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-${flags}`,
    });
    const carried = await context.with(caller, () =>
      telemetry.observe(execute, async () => {
        const headers: Record<string, string> = {};
        propagation.inject(context.active(), headers);
        return headers['traceparent'];
      }),
    );
    expect(spans.getFinishedSpans().map(({ name }) => name)).toEqual(expected);
    expect(carried).toMatch(new RegExp(`^00-${'1'.repeat(32)}-.*-${flags}$`));
  });

  test('shows the error of an operation by its code', async () => {
    const telemetry = traced();
    const error = new ShardUnavailableError(shard, 'the server is away '.repeat(100));
    await telemetry.observe(execute, () => Promise.reject(error)).catch(() => undefined);
    const { status, attributes } = spanOf('execute DepositAction');
    expect(status).toEqual({ code: SpanStatusCode.ERROR, message: error.message.slice(0, 1_000) });
    expect(attributes['error.type']).toBe('shard-unavailable');
  });

  test('continues from an event to its handler, and shows how long it waited in between', async () => {
    const telemetry = traced();
    await telemetry.observe(handling(eventOf('1')), () => telemetry.observe(execute, async () => undefined));
    expect(tree()).toEqual([
      'handle notify > execute DepositAction',
      'deliver Deposited > handle notify',
      ' > deliver Deposited',
    ]);
    const delivered = spanOf('deliver Deposited');
    expect(delivered.spanContext().traceId).toBe('1'.repeat(32));
    expect(delivered.parentSpanContext?.spanId).toBe('1'.repeat(16));
    expect(delivered.startTime).toEqual([Date.parse('2026-03-03T03:03:03Z') / 1_000, 333_000_000]);
  });

  test('of a batch is linked to those of its events', async () => {
    const telemetry = traced();
    const events = ['1', '2'].map(eventOf);
    await telemetry.observe(handling(...events), () => telemetry.observe(publish, async () => undefined));
    expect(tree()).toEqual(['handle notify > publish events-to-nats', ' > handle notify']);
    const { links } = spanOf('handle notify');
    expect(links.map((link) => link.context.traceId)).toEqual(['1'.repeat(32), '2'.repeat(32)]);
  });

  test('of an event without a trace begins with its delivery', async () => {
    const telemetry = traced();
    await telemetry.observe(handling({ ...eventOf('1'), headers: {} }), async () => undefined);
    expect(tree()).toEqual(['deliver Deposited > handle notify', ' > deliver Deposited']);
  });
});

/** An SDK that measures, and what it has measured of each combination of attributes. */
function measured() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  ended.push(() => meterProvider.shutdown());
  const points = async () => {
    await reader.forceFlush();
    return exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics: all }) => all))
      .flatMap(({ descriptor, dataPoints }) =>
        (dataPoints as readonly DataPoint<number | { readonly count: number }>[]).map(
          ({ attributes, value }) =>
            [descriptor.name, attributes, typeof value === 'number' ? value : value.count] as const,
        ),
      );
  };
  return { meter: meterProvider.getMeter('test'), meterProvider, points };
}

describe('metrics', () => {
  test('count operations with their durations and errors', async () => {
    const { meterProvider, points } = measured();
    const telemetry = new Telemetry({ meterProvider });
    for (const attempt of [1, 2, 3])
      await telemetry.observe({ ...perform, attempt }, () => telemetry.observe(read, async () => undefined));
    await telemetry.observe(execute, async () => undefined);
    const stale = new ShardUnavailableError(shard, 'the server is away');
    await telemetry.observe(execute, () => Promise.reject(stale)).catch(() => undefined);
    await telemetry.observe({ kind: 'write-group', shard, planCount: 7 }, async () => undefined);
    expect(await points()).toEqual([
      ['framework.execute.duration', { 'framework.action': 'DepositAction' }, 1],
      [
        'framework.execute.duration',
        { 'framework.action': 'DepositAction', 'error.type': 'shard-unavailable' },
        1,
      ],
      ['framework.group.duration', { 'framework.shard': '0,0' }, 1],
      ['framework.group.plans', { 'framework.shard': '0,0' }, 1],
      ['framework.execute.retries', { 'framework.action': 'DepositAction' }, 2],
    ]);
  });

  test('tell apart the subjects that fail with the same error', async () => {
    const { meterProvider, points } = measured();
    const telemetry = new Telemetry({ meterProvider });
    const away = new ShardUnavailableError(shard, 'the server is away');
    for (const action of ['DepositAction', 'WithdrawAction', 'WithdrawAction'])
      await telemetry.observe({ kind: 'execute', action }, () => Promise.reject(away)).catch(() => undefined);
    expect((await points()).map(([, attributes, count]) => [attributes['framework.action'], count])).toEqual([
      ['DepositAction', 1],
      ['WithdrawAction', 2],
    ]);
  });

  test('count errors as one kind once there are a thousand kinds', async () => {
    const { meterProvider, points } = measured();
    const telemetry = new Telemetry({ meterProvider });
    for (let kind = 1; kind <= 1_500; kind++) {
      const error = Object.assign(new Error('refused'), { name: `Error${kind}` });
      for (const _time of ['first', 'second'])
        await telemetry.observe(execute, () => Promise.reject(error)).catch(() => undefined);
    }
    const counts = new Map(
      (await points()).map(([, attributes, count]) => [attributes['error.type'], count]),
    );
    expect(counts.size).toBe(1_001);
    expect([counts.get('Error1'), counts.get('Error1000'), counts.get('_OTHER')]).toEqual([2, 2, 1_000]);
  });

  test('do not tell the combinations of shards apart', async () => {
    const { meterProvider, points } = measured();
    const telemetry = new Telemetry({ meterProvider });
    for (const group of [1, 2, 3]) {
      const shards = [shard, ShardIdentifier.of(group, 0)];
      await telemetry.observe({ ...persist, shards }, async () => undefined);
    }
    expect(await points()).toEqual([['framework.persist.duration', { 'framework.shard': 'several' }, 3]]);
  });
});
