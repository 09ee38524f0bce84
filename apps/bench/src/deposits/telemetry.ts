import { fileURLToPath } from 'node:url';
import type { Observer } from '@framework/core/adapter';
import { Telemetry } from '@framework/telemetry';
import { ProxyTracerProvider, context, createNoopMeter, trace } from '@opentelemetry/api';
import type { BenchContext, Benchmark } from '../benchmark/benchmark.js';
import { type TelemetrySdk, startSdk } from '../load/telemetry-sdk.js';
import { frameworkContender } from './contenders/framework-contender.js';
import { httpContender } from './contenders/http-contender.js';
import { type DepositEnvironment, openEnvironment } from './deposit-environment.js';
import { measureInTurns } from './measure-in-turns.js';
import { ServiceProcess } from './service-process.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
const sdkFile = fileURLToPath(new URL('./processes/register-sdk.js', import.meta.url));

/** What telemetry costs deposits: without an SDK, and with one that samples a hundredth of the traces and exports metrics. */
export const telemetryCost: Benchmark = {
  name: 'deposits-telemetry',
  async run(benchContext) {
    const environment = await openEnvironment(benchContext.server);
    const sdk = startSdk();
    const contenders = [
      { ...frameworkContender(environment), name: 'untraced' },
      { ...frameworkContender(environment, { observer: withoutSdk() }), name: 'without SDK' },
      { ...frameworkContender(environment, { observer: new Telemetry(sdk) }), name: 'with SDK' },
      { ...frameworkContender(environment, { observer: leastPossible(sdk) }), name: 'by hand' },
    ] as const;
    const found = await measureInTurns(contenders, load, benchContext);
    await sdk.stop();
    const overHttp = await measureOverHttp(environment, benchContext);
    await environment.close();
    const { untraced, 'without SDK': idle, 'with SDK': traced, 'by hand': byHand } = found;
    return [
      {
        title: 'telemetry with an SDK, 1 % sampled ÷ none: deposits/s, 16 clients',
        value: traced.ratio,
        unit: '×',
        atLeast: 0.97,
        measured: { untraced: untraced.perSecond, 'with SDK': traced.perSecond, error: traced.ratioError },
      },
      {
        title: 'telemetry without an SDK ÷ none: deposits/s, 16 clients',
        value: idle.ratio,
        unit: '×',
        atLeast: 0.97,
        measured: { untraced: untraced.perSecond, 'without SDK': idle.perSecond, error: idle.ratioError },
      },
      {
        title: 'telemetry with an SDK, 1 % sampled: CPU of the process per deposit',
        value: 1_000 * (traced.cpuMs - untraced.cpuMs),
        unit: 'µs more',
        measured: { untraced: untraced.cpuMs, 'with SDK': traced.cpuMs, 'by hand': byHand.cpuMs },
      },
      {
        title: 'one span and one histogram by hand ÷ none: deposits/s, 16 clients',
        value: byHand.ratio,
        unit: '×',
        measured: { untraced: untraced.perSecond, 'by hand': byHand.perSecond, error: byHand.ratioError },
      },
      {
        title: 'a service with an SDK, 1 % sampled ÷ one without, deposits/s over HTTP',
        value: overHttp['http, with SDK'].ratio,
        unit: '×',
        atLeast: 0.97,
        measured: {
          http: overHttp.http.perSecond,
          'http, with SDK': overHttp['http, with SDK'].perSecond,
          error: overHttp['http, with SDK'].ratioError,
        },
      },
    ];
  },
};

/** Deposits with requests to two services, of which one has an SDK. */
async function measureOverHttp(environment: DepositEnvironment, benchContext: BenchContext) {
  const plain = await ServiceProcess.start(environment.urls, 'http');
  const traced = await ServiceProcess.start(environment.urls, 'http', {}, [`--import=${sdkFile}`]);
  try {
    const contenders = [
      httpContender('http', environment, plain, load.clientCount),
      httpContender('http, with SDK', environment, traced, load.clientCount),
    ] as const;
    return await measureInTurns(contenders, load, benchContext);
  } finally {
    await Promise.all([plain.stop(), traced.stop()]);
  }
}

/** A telemetry whose API has no SDK behind it, as in a process that registers none. */
function withoutSdk(): Telemetry {
  return new Telemetry({
    tracerProvider: new ProxyTracerProvider(),
    meterProvider: { getMeter: () => createNoopMeter() },
  });
}

/** The least that an SDK can be asked for: each execution is one span, active while it runs, and one measured duration. */
function leastPossible({ tracerProvider, meterProvider }: TelemetrySdk): Observer {
  const tracer = tracerProvider.getTracer('bench');
  const durations = meterProvider.getMeter('bench').createHistogram('duration', { unit: 's' });
  return {
    observe: (operation, run) => {
      if (operation.kind !== 'execute') return run();
      const attributes = { action: operation.action };
      const span = tracer.startSpan('execute', { attributes });
      const startedMs = performance.now();
      const outcome = context.with(trace.setSpan(context.active(), span), run);
      const end = (): void => {
        durations.record((performance.now() - startedMs) / 1_000, attributes);
        span.end();
      };
      outcome.then(end, end);
      return outcome;
    },
  };
}
