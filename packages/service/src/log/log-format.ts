import { censor, errorReason, redacted, redactedWith } from '@framework/http';
import { type SpanContext, isSpanContextValid, trace } from '@opentelemetry/api';
import type { LoggerOptions } from 'pino';

/** Fields that are never written, whatever a line may be given. */
const secretFields =
  'authorization cookie set-cookie password secret token apiKey key privateKey params parameters body payload input query headers claims principal balance amount detail where internalQuery connectionString'.split(
    ' ',
  );

/**
 * How the lines of a service are made: with the ids of the active span, and without secrets. No value of a row, a request or the configuration's secrets
 * is written, not even one that a driver quotes in an error.
 */
export const logOptions: Omit<LoggerOptions, 'name'> = {
  mixin: () => traceFields(trace.getActiveSpan()?.spanContext()),
  redact: {
    paths: ['', '*.', '*.*.'].flatMap((parents) => secretFields.map((field) => pathOf(parents, field))),
    censor,
  },
  hooks: {
    logMethod(parts, method) {
      const [first, ...others]: readonly unknown[] = parts;
      if (first instanceof Error) {
        // pino would write all fields of an error, which may be values of a row.
        const texts = others.map((part) =>
          typeof part === 'string' ? redactedWith(part, first) : clean(part),
        );
        method.apply(this, [{ reason: errorReason(first) }, ...texts] as unknown as typeof parts);
      } else {
        method.apply(this, parts.map((part: unknown) => clean(part)) as typeof parts);
      }
    },
  },
};

function pathOf(parents: string, field: string): string {
  return field.includes('-') ? `${parents.replace(/\.$/, '')}["${field}"]` : `${parents}${field}`;
}

/** The ids by which a line is found from its trace, and the trace from the line. */
interface TraceFields {
  readonly traceId?: string;
  readonly spanId?: string;
}

function traceFields(context: SpanContext | undefined): TraceFields {
  if (context === undefined || !isSpanContextValid(context)) return {};
  return { traceId: context.traceId, spanId: context.spanId };
}

/** The ids of the execution that has made an event, from the event's headers. */
export function traceOf({ traceparent = '' }: Readonly<Record<string, string>>): TraceFields {
  const [, traceId, spanId] = /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-/.exec(traceparent) ?? [];
  return traceId === undefined || spanId === undefined ? {} : { traceId, spanId };
}

const depthMax = 4;

/** The same value with its texts redacted, and with the reason of an error in its place. */
function clean(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return redacted(value);
  if (value instanceof Error) return errorReason(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === depthMax) return censor;
  if (Array.isArray(value)) return value.map((each) => clean(each, depth + 1));
  if (value instanceof Date || value instanceof URL) return redacted(String(value));
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, clean(field, depth + 1)]));
}
