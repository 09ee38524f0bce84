import { setTimeout as pause } from 'node:timers/promises';
import type { BenchContext, Benchmark, Figure } from '../benchmark/benchmark.js';
import { measureContenders, median } from '../benchmark/measure-contenders.js';
import { BenchIssuer } from '../callers/bench-issuer.js';
import { Callers } from '../callers/callers.js';
import { openEnvironment } from '../deposits/deposit-environment.js';
import { ServiceProcess } from '../deposits/service-process.js';
import { type AttackKind, type AttackReport, AttackingProcess } from './attacking-process.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
/** How long a measurement of the full run takes: longer than slow headers are tolerated. */
const fullDurationMs = 15_000;
/** How long a newly started process compiles its code. */
const warmUpMs = 10_000;
/** The callers come from here, and stand for clients with many addresses; the limits hold for the addresses of the attacks. */
const callersAddress = '127.0.0.1';
/** How long the connections of an attack that has ended may take to be closed. */
const restMs = 1_000;

/** The share of what the callers can do that they usually do: a service that has no more left cannot serve an attack beside them. */
const usualShare = 0.7;
const kinds = ['slow', 'address', 'principal'] as const;
const titles: Readonly<Record<AttackKind, string>> = {
  slow: '2,000 slow connections',
  address: 'one address floods the service',
  principal: 'one principal floods the service',
};

/** What attacks cost the clients that behave well, with the default limits for each address and principal. */
export const underAttack: Benchmark = {
  name: 'http-under-attack',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const issuer = await BenchIssuer.create();
    const service = await ServiceProcess.start(environment.urls, 'http', {
      security: issuer.security,
      http: { limits: { unlimitedAddresses: [callersAddress] } },
    });
    const callers = new Callers(environment, issuer, service, load);
    const fullMs = fullDurationMs * context.scale;
    try {
      await callers.perSecond(warmUpMs);
      const usual = usualShare * (await callers.perSecond(fullMs));
      const attacked = { callers, service, durationMs: fullMs };
      return [
        ...(await besideUsualLoad({ ...attacked, perSecondMax: usual }, context)),
        ...(await besideFullLoad({ ...attacked, perSecondMax: Infinity }, context)),
      ];
    } finally {
      await callers.close();
      await service.stop();
      await issuer.close();
      await environment.close();
    }
  },
};

/** Whom an attack is to disturb. */
interface Attacked {
  readonly callers: Callers;
  readonly service: ServiceProcess;
  readonly durationMs: number;
  readonly perSecondMax: number;
}

/** What the others have left of their usual load. */
async function besideUsualLoad(attacked: Attacked, context: BenchContext): Promise<readonly Figure[]> {
  context.say('  others: usual load');
  const { callers, durationMs, perSecondMax } = attacked;
  const measured = await measureContenders(
    [
      { name: 'calm', measure: () => callers.perSecond(durationMs, perSecondMax) } as const,
      ...kinds.map((kind) => ({
        name: kind,
        measure: async () => (await measureAttack(kind, attacked, context)).others,
      })),
    ],
    context,
  );
  return kinds.map((kind) => ({
    title: `${titles[kind]}: throughput of the others, usual load`,
    value: (measured[kind] / measured.calm) * 100,
    unit: '%',
    atLeast: 95,
    measured: { calm: measured.calm, attacked: measured[kind] },
  }));
}

/**
 * What a service has left that has no capacity to spare: all deposits that it makes, with those that the limits allow the attack, as a share
 * of those that it makes directly before or after while the attack takes as much of the machine but goes to another server.
 */
async function besideFullLoad(attacked: Attacked, context: BenchContext): Promise<readonly Figure[]> {
  context.say('  others: all that they can');
  const totals = new Map<AttackKind, Record<Target, number[]>>();
  const measured = await measureContenders(
    kinds.map((kind) => {
      const own: Record<Target, number[]> = { service: [], elsewhere: [] };
      totals.set(kind, own);
      return {
        name: kind,
        measure: async () => {
          const order: Target[] =
            own.service.length % 2 === 0 ? ['service', 'elsewhere'] : ['elsewhere', 'service'];
          for (const target of order)
            own[target].push(totalOf(await measureAttack(kind, attacked, context, target)));
          return ((own.service.at(-1) ?? Number.NaN) / (own.elsewhere.at(-1) ?? Number.NaN)) * 100;
        },
      };
    }),
    context,
  );
  return kinds.map((kind) => ({
    title: `${titles[kind]}: deposits beside all that the others can ÷ the same attack on another server`,
    value: measured[kind],
    unit: '%',
    atLeast: 95,
    measured: {
      elsewhere: median(totals.get(kind)?.elsewhere.slice(1) ?? []),
      attacked: median(totals.get(kind)?.service.slice(1) ?? []),
    },
  }));
}

/** Where an attack goes: to the measured service, or to another server. */
type Target = 'service' | 'elsewhere';

/** Deposits in a second: those of the others, and those that the limits allow the attack. */
interface Deposits {
  readonly others: number;
  readonly allowed: number;
}

function totalOf({ others, allowed }: Deposits): number {
  return others + allowed;
}

/** Measures the callers during an attack, and says what the attack itself has cost. */
async function measureAttack(
  kind: AttackKind,
  { callers, service, durationMs, perSecondMax }: Attacked,
  { say }: BenchContext,
  target: Target = 'service',
): Promise<Deposits> {
  const attacker = await callers.openOther();
  const attack = await AttackingProcess.start({
    ...(target === 'service' && { url: service.url }),
    kind,
    path: `/wallets/${attacker.id.value}/deposit`,
    token: attacker.token,
  });
  const cpuMs = (): Promise<readonly number[]> => Promise.all([attack.cpuMs(), service.cpuMs()]);
  const before = await cpuMs();
  const allowedBefore = allowedOf(await attack.report());
  const startedAtMs = performance.now();
  const others = await callers.perSecond(durationMs, perSecondMax);
  const tookMs = performance.now() - startedAtMs;
  const used = (await cpuMs()).map((ms, index) => ms - (before[index] ?? 0));
  const report = await attack.report();
  say(`    ${JSON.stringify(report)}; CPU of attack and service: ${used.join(' and ')} ms`);
  await attack.end();
  await pause(restMs);
  return { others, allowed: ((allowedOf(report) - allowedBefore) / tookMs) * 1_000 };
}

function allowedOf({ answers }: AttackReport): number {
  return answers['200'] ?? 0;
}
