import { FrameworkError, type ShardIdentifier } from '@framework/core';
import type { ObservedEvent, Operation } from '@framework/core/adapter';
import {
  type Attributes,
  type Context,
  type Link,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  context,
  propagation,
  trace,
} from '@opentelemetry/api';

/** The maximum number of links of a span, as in the default limits of the SDK. */
const linksMax = 128;

/** The maximum number of characters of the message of a failed span. */
const messageMax = 1_000;

/** The spans of one operation, and the context in which what belongs to it runs. */
export interface OpenSpans {
  readonly within: Context;
  /** The innermost one first. */
  readonly spans: readonly Span[];
}

type Handled = Extract<Operation, { readonly kind: 'handle' }>;
type Part = Extract<Operation, { readonly kind: 'perform' | 'read' | 'persist' | 'publish' }>;

/**
 * Begins the spans of an operation:
 *
 *     execute ──▶ perform ──▶ read
 *        └──────▶ persist               the log carries the context of `execute`
 *                   ⋮
 *                deliver ──▶ handle ──▶ execute …, publish
 *
 * A batch begins a trace of its own, with links to those of its events. Groups are in no trace.
 *
 * @returns `undefined` when nothing of it is recorded
 */
export function beginSpans(tracer: Tracer, operation: Operation): OpenSpans | undefined {
  switch (operation.kind) {
    case 'execute':
      return ofTrace(tracer, `execute ${operation.action}`, { 'framework.action': operation.action });
    case 'write-group':
      return undefined;
    case 'handle':
      return beginHandling(tracer, operation);
    default:
      return beginPart(tracer, operation);
  }
}

/** Ends the spans of an operation, with the error that it has thrown, if any. */
export function endSpans({ spans }: OpenSpans, failure?: { readonly error: unknown }): void {
  for (const span of spans) {
    if (failure !== undefined) unlessThrown(() => describeFailure(span, failure.error));
    unlessThrown(() => span.end());
  }
}

function describeFailure(span: Span, error: unknown): void {
  span.setAttribute('error.type', errorType(error));
  span.setStatus({ code: SpanStatusCode.ERROR, message: unlessThrown(() => messageOf(error)) ?? '' });
}

/** How spans and metrics name a shard: its group and member, such as `0,1`. */
export function shardName({ group, member }: ShardIdentifier): string {
  return `${group},${member}`;
}

/** What is wrong, in few different words: the code of the framework's error, or the name of another one. */
export function errorType(error: unknown): string {
  const nameOf = (): string | undefined => (error instanceof Error ? error.name : undefined);
  return FrameworkError.find(error)?.code ?? unlessThrown(nameOf) ?? '_OTHER';
}

/** Works with an SDK or with what was thrown: both are foreign, and their errors must change nothing. */
export function unlessThrown<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, messageMax) : '';
}

/** A span whose context must be passed on even if it is not recorded, so that nothing within it is recorded either. */
function within(
  tracer: Tracer,
  name: string,
  parent: Context,
  attributes: Attributes,
  options: { readonly kind?: SpanKind; readonly links?: Link[] } = {},
): OpenSpans | undefined {
  const span = tracer.startSpan(name, { attributes, ...options }, parent);
  // Without an SDK there is nothing to pass on but what is active already.
  if (!trace.isSpanContextValid(span.spanContext())) return undefined;
  return { within: trace.setSpan(parent, span), spans: [span] };
}

/** A part of the active trace if that is recorded, or a trace of its own. */
function ofTrace(tracer: Tracer, name: string, attributes: Attributes): OpenSpans | undefined {
  const parent = context.active();
  const around = trace.getSpan(parent);
  // A span that only says once more that nothing is sampled would cost as much as all metrics of an action.
  if (around !== undefined && !isSampled(around)) return undefined;
  return within(tracer, name, parent, attributes);
}

function isSampled(span: Span): boolean {
  // That of a caller elsewhere records nothing here, but may be sampled there.
  return span.isRecording() || (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;
}

/** A part of the active span, if that is recorded: seldom, so nothing is described before. */
function beginPart(tracer: Tracer, operation: Part): OpenSpans | undefined {
  const parent = context.active();
  if (trace.getSpan(parent)?.isRecording() !== true) return undefined;
  switch (operation.kind) {
    case 'perform':
      return within(tracer, 'perform', parent, { 'framework.attempt': operation.attempt });
    case 'read':
      return within(tracer, `read ${operation.model}`, parent, {
        'framework.model': operation.model,
        'framework.model_count': operation.count,
      });
    case 'persist':
      return within(tracer, 'persist', parent, {
        'framework.shards': operation.shards.map(shardName),
        'framework.event_count': operation.eventCount,
      });
    default: {
      const attributes = {
        'messaging.operation.name': 'publish',
        'messaging.operation.type': 'send',
        'messaging.batch.message_count': operation.messageCount,
      };
      return within(tracer, `publish ${operation.relay}`, parent, attributes, { kind: SpanKind.PRODUCER });
    }
  }
}

function beginHandling(
  tracer: Tracer,
  { handler, attempt, isBatch, events }: Handled,
): OpenSpans | undefined {
  const [event] = events;
  const attributes: Attributes = {
    'messaging.operation.name': 'handle',
    'messaging.operation.type': 'process',
    'messaging.consumer.group.name': handler,
    'framework.attempt': attempt,
  };
  const name = `handle ${handler}`;
  if (event === undefined || events.length > 1) {
    const counted = { ...attributes, 'messaging.batch.message_count': events.length };
    const options = { kind: SpanKind.CONSUMER, links: linksTo(events) };
    return within(tracer, name, ROOT_CONTEXT, counted, options);
  }
  const ofEvent: Attributes = {
    ...attributes,
    'messaging.message.id': event.id,
    'framework.event_type': event.type,
    'framework.model': event.modelName,
    'framework.model_id': event.modelId,
    ...(isBatch && { 'messaging.batch.message_count': 1 }),
  };
  const origin = contextOf(event);
  const delivering = tracer.startSpan(
    `deliver ${event.type}`,
    { kind: SpanKind.CONSUMER, startTime: event.createdDate, attributes: ofEvent },
    origin,
  );
  const opened = unlessThrown(() => within(tracer, name, trace.setSpan(origin, delivering), ofEvent));
  // Nobody would end it.
  if (opened === undefined) unlessThrown(() => delivering.end());
  return opened && { ...opened, spans: [...opened.spans, delivering] };
}

function linksTo(events: readonly ObservedEvent[]): Link[] {
  return events.slice(0, linksMax).flatMap((event) => {
    const spanContext = trace.getSpanContext(contextOf(event));
    return spanContext === undefined ? [] : [{ context: spanContext }];
  });
}

/** The context of the execution that has made an event. */
function contextOf({ headers }: ObservedEvent): Context {
  return propagation.extract(ROOT_CONTEXT, headers);
}
