import type { BenchContext, Benchmark } from '../benchmark/benchmark.js';
import { measureContenders, median } from '../benchmark/measure-contenders.js';
import { query } from '../database/bench-server.js';
import { type DepositEnvironment, openEnvironment } from '../deposits/deposit-environment.js';
import { BenchIssuer } from './bench-issuer.js';
import { Callers } from './callers.js';
import { GuardedService, type Guards } from './guarded-service.js';

const load = { clientCount: 16, walletCount: 1_000 } as const;
/** How long a measurement of the full run takes. */
const fullDurationMs = 10_000;
/** How long a newly started process compiles its code. */
const warmUpMs = 10_000;

const none: Guards = {};
const all: Guards = { tokens: true, limits: true, audit: true };

/** What tokens, policies, limits and the audit log together cost the callers of the service. */
export const guardCost: Benchmark = {
  name: 'http-guards',
  async run(context) {
    const { perSecond, cpuMs } = await measureGuards({ none, all }, context);
    return [
      {
        title: 'over HTTP with tokens, policies, limits and audit ÷ without them, deposits/s, 16 clients',
        value: perSecond.all / perSecond.none,
        unit: '×',
        atLeast: 0.9,
        measured: perSecond,
      },
      {
        title: 'the same in CPU of the service per deposit, ms',
        value: cpuMs.all / cpuMs.none,
        unit: '×',
        measured: cpuMs,
      },
    ];
  },
};

/** What each of them costs alone. */
export const eachGuardCost: Benchmark = {
  name: 'http-each-guard',
  async run(context) {
    const alone = {
      'tokens and policies': { tokens: true },
      limits: { limits: true },
      audit: { audit: true },
    } as const;
    const { perSecond, cpuMs } = await measureGuards({ none, ...alone }, context);
    return (Object.keys(alone) as (keyof typeof alone)[]).flatMap((name) => [
      {
        title: `over HTTP with ${name} alone ÷ without, deposits/s, 16 clients`,
        value: perSecond[name] / perSecond.none,
        unit: '×',
        measured: { none: perSecond.none, [name]: perSecond[name] },
      },
      {
        title: `${name} alone: the same in CPU of the service per deposit, ms`,
        value: cpuMs[name] / cpuMs.none,
        unit: '×',
        measured: { none: cpuMs.none, [name]: cpuMs[name] },
      },
    ]);
  },
};

/** A service, and its callers. */
interface Guarded<Name extends string> {
  readonly name: Name;
  readonly guards: Guards;
  readonly service: GuardedService;
  readonly callers: Callers;
}

/** The medians of the contenders, by their names. */
interface GuardMedians<Name extends string> {
  readonly perSecond: Readonly<Record<Name, number>>;
  /** The processor time of the service per deposit, in all its threads. */
  readonly cpuMs: Readonly<Record<Name, number>>;
}

/** Measures services that differ by their guards; all of them are sent the same requests, with tokens. */
async function measureGuards<Name extends string>(
  contenders: Readonly<Record<Name, Guards>>,
  context: BenchContext,
): Promise<GuardMedians<Name>> {
  const environment = await openEnvironment(context.server);
  const issuer = await BenchIssuer.create();
  const started: Guarded<Name>[] = [];
  try {
    for (const name of Object.keys(contenders) as Name[]) {
      const guards = contenders[name];
      const service = await GuardedService.start(environment.urls, issuer, guards);
      const callers = new Callers(environment, issuer, service.process, load);
      started.push({ name, guards, service, callers });
      await callers.perSecond(warmUpMs);
    }
    const cpuMs = new Map<Name, number[]>(started.map(({ name }) => [name, []]));
    const perSecond = await measureContenders(
      started.map((guarded) => ({
        name: guarded.name,
        measure: async () => {
          const measured = await measureOnce(guarded, fullDurationMs * context.scale);
          cpuMs.get(guarded.name)?.push(measured.cpuMs);
          return measured.perSecond;
        },
      })),
      context,
    );
    await verifyGuards(environment, started);
    const ofRounds = [...cpuMs].map(([name, [_warmUp, ...counted]]) => [name, median(counted)]);
    return { perSecond, cpuMs: Object.fromEntries(ofRounds) as Record<Name, number> };
  } finally {
    for (const { callers, service } of started) {
      await callers.close();
      await service.stop();
    }
    await issuer.close();
    await environment.close();
  }
}

async function measureOnce(
  { callers, service: { process } }: Guarded<string>,
  durationMs: number,
): Promise<{ readonly perSecond: number; readonly cpuMs: number }> {
  const before = { cpuMs: await process.cpuMs(), count: callers.depositCount };
  const perSecond = await callers.perSecond(durationMs);
  const cpuMs = (await process.cpuMs()) - before.cpuMs;
  return { perSecond, cpuMs: cpuMs / (callers.depositCount - before.count) };
}

/**
 * Checks that the services did what they are measured for: a deposit was made by the owner of the wallet where there are tokens, and
 * is in the audit log where there is one.
 *
 * @throws Error when anything is missing
 */
async function verifyGuards(
  { urls }: DepositEnvironment,
  services: readonly Guarded<string>[],
): Promise<void> {
  let byOwner = 0;
  for (const url of urls) {
    const [found] = await query<{ count: number }>(
      url,
      `select count(*)::integer as count from eventlog.events join wallets on wallets.id::text = model_id
       where event_type = 'WalletMoneyDepositedEvent' and principal = owner_id::text`,
      [],
    );
    byOwner += found?.count ?? 0;
  }
  const withTokens = services.filter(({ guards }) => guards.tokens);
  const expected = withTokens.reduce((sum, { callers }) => sum + callers.depositCount, 0);
  if (byOwner !== expected) throw new Error(`Of ${expected} deposits, ${byOwner} were made by an owner`);
  for (const { service, callers } of services.filter(({ guards }) => guards.audit)) {
    const audited = await service.auditedCount();
    if (audited !== callers.depositCount)
      throw new Error(`Of ${callers.depositCount} deposits, ${audited} are in the audit log`);
  }
}
