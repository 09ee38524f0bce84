import { fileURLToPath } from 'node:url';
import { Telemetry } from '@framework/telemetry';
import { ProxyTracerProvider, createNoopMeter } from '@opentelemetry/api';
import type { BenchContext, Benchmark } from '../benchmark/benchmark.js';
import { startSdk } from '../load/telemetry-sdk.js';
import { frameworkContender } from './contenders/framework-contender.js';
import { httpContender } from './contenders/http-contender.js';
import { type DepositEnvironment, openEnvironment } from './deposit-environment.js';
import { measureDeposits } from './measure-deposits.js';
import { ServiceProcess } from './service-process.js';
import { valuesOf } from './values-of.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
const sdkFile = fileURLToPath(new URL('./processes/register-sdk.js', import.meta.url));

/** What telemetry costs deposits: without an SDK, and with one that samples a hundredth of the traces and exports metrics. */
export const telemetryCost: Benchmark = {
  name: 'deposits-telemetry',
  async run(benchContext) {
    const environment = await openEnvironment(benchContext.server);
    const sdk = startSdk();
    const telemetry = new Telemetry(sdk);
    const contenders = [
      { ...frameworkContender(environment), name: 'untraced' },
      { ...frameworkContender(environment, { observer: withoutSdk() }), name: 'without SDK' },
      { ...frameworkContender(environment, { observer: telemetry }), name: 'with SDK' },
    ] as const;
    const found = await measureDeposits(contenders, load, benchContext);
    await sdk.stop();
    const overHttp = await measureOverHttp(environment, benchContext);
    await environment.close();
    const { untraced, 'without SDK': idle, 'with SDK': traced } = found;
    const rates = valuesOf(found, 'perSecond');
    return [
      {
        title: 'telemetry with an SDK, 1 % sampled ÷ none: deposits/s, 16 clients',
        value: traced.perSecond / untraced.perSecond,
        unit: '×',
        atLeast: 0.97,
        measured: rates,
      },
      {
        title: 'telemetry without an SDK ÷ none: deposits/s, 16 clients',
        value: idle.perSecond / untraced.perSecond,
        unit: '×',
        atLeast: 0.97,
        measured: rates,
      },
      {
        title: 'telemetry with an SDK, 1 % sampled: CPU of the process per deposit',
        value: 1_000 * (traced.cpuMs - untraced.cpuMs),
        unit: 'µs more',
        measured: valuesOf(found, 'cpuMs'),
      },
      {
        title: 'a service with an SDK, 1 % sampled ÷ one without, deposits/s over HTTP',
        value: overHttp['http, with SDK'].perSecond / overHttp.http.perSecond,
        unit: '×',
        atLeast: 0.97,
        measured: valuesOf(overHttp, 'perSecond'),
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
      httpContender(environment, plain.url, load.clientCount),
      { ...httpContender(environment, traced.url, load.clientCount), name: 'http, with SDK' },
    ] as const;
    return await measureDeposits(contenders, load, benchContext);
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
