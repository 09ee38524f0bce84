import { setTimeout as pause } from 'node:timers/promises';
import type { BenchContext, Benchmark } from '../benchmark/benchmark.js';
import type { Figure } from '../benchmark/figure.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { BenchIssuer } from '../callers/bench-issuer.js';
import { Callers } from '../callers/callers.js';
import { openEnvironment } from '../deposits/deposit-environment.js';
import { ServiceProcess } from '../deposits/service-process.js';
import { type AttackKind, AttackingProcess } from './attacking-process.js';

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
  slow: '2,000 slow connections: throughput of the others',
  address: 'one address floods the service: throughput of the others',
  principal: 'one principal floods the service: throughput of the others',
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
      const figures: Figure[] = [];
      for (const [demand, perSecondMax] of [
        ['usual load', usual],
        ['all that they can', Infinity],
      ] as const) {
        context.say(`  others: ${demand}`);
        const calm = { name: 'calm', measure: () => callers.perSecond(fullMs, perSecondMax) } as const;
        const attacked = kinds.map((kind) => ({
          name: kind,
          measure: () => measureAttack(kind, { callers, service, durationMs: fullMs, perSecondMax }, context),
        }));
        const measured = await measureContenders([calm, ...attacked], context);
        for (const { name } of attacked)
          figures.push({
            title: `${titles[name]}, ${demand}`,
            value: (measured[name] / measured.calm) * 100,
            unit: '%',
            atLeast: 95,
            measured: { calm: measured.calm, attacked: measured[name] },
          });
      }
      return figures;
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

/** Measures the callers during an attack, and says what the attack itself has cost. */
async function measureAttack(
  kind: AttackKind,
  { callers, service, durationMs, perSecondMax }: Attacked,
  { say }: BenchContext,
): Promise<number> {
  const attacker = await callers.openOther();
  const path = `/wallets/${attacker.id.value}/deposit`;
  const attack = await AttackingProcess.start({ url: service.url, kind, path, token: attacker.token });
  const cpuMs = (): Promise<readonly number[]> => Promise.all([attack.cpuMs(), service.cpuMs()]);
  const before = await cpuMs();
  const perSecond = await callers.perSecond(durationMs, perSecondMax);
  const used = (await cpuMs()).map((ms, index) => ms - (before[index] ?? 0));
  say(`    ${JSON.stringify(await attack.report())}; CPU of attack and service: ${used.join(' and ')} ms`);
  await attack.end();
  await pause(restMs);
  return perSecond;
}
