import { context, metrics, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';

const sampledShare = 0.01;
/** How often metrics are exported: more often than usual, so that each measurement contains exports. */
const exportIntervalMs = 500;

/** The parts of an SDK, and how to stop them. */
export interface TelemetrySdk {
  readonly tracerProvider: TracerProvider;
  readonly meterProvider: MeterProvider;
  readonly stop: () => Promise<void>;
}

/**
 * Starts an SDK that samples a hundredth of the traces. Its exporters throw away what they get: their network is not a part of the
 * service's work. Its context manager becomes that of the process.
 */
export function startSdk(): TelemetrySdk {
  const exporter = {
    export: (_data: unknown, whenDone: (result: { readonly code: number }) => void) => whenDone({ code: 0 }),
    shutdown: nothing,
    forceFlush: nothing,
  };
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const tracerProvider = new TracerProvider({
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampledShare) }),
    spanProcessors: [new BatchSpanProcessor({ exporter })],
  });
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: exportIntervalMs });
  const meterProvider = new MeterProvider({ readers: [reader] });
  return {
    tracerProvider,
    meterProvider,
    stop: async () => {
      await Promise.all([tracerProvider.shutdown(), meterProvider.shutdown()]);
      context.disable();
    },
  };
}

async function nothing(): Promise<void> {}

/** Registers the SDK for the process, as a file does that is given to `node --import`. */
export function registerSdk(): void {
  const { tracerProvider, meterProvider } = startSdk();
  trace.setGlobalTracerProvider(tracerProvider);
  metrics.setGlobalMeterProvider(meterProvider);
}
