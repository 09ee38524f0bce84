import type { FrameworkConfig } from '@framework/core';

import type { ListedDatabase } from '../loaded-config.js';
import { streamCount } from './database-checks.js';
import type { DatabaseFacts } from './database-facts.js';
import { type Finding, finding } from './finding.js';

/** A database that answered, with what was seen in it. */
export interface SeenDatabase {
  readonly database: ListedDatabase;
  readonly facts: DatabaseFacts;
}

/** What decides about the findings of all databases together. */
export interface FleetOptions {
  /** How many processes of the service use each database. */
  readonly processes: number;
  /** How far two clocks may differ. */
  readonly clockSkewMaxMs: number;
}

/** How many connections a process has to a database beside its pool. */
const besidePool = 5;

/** What only all databases together say. */
export function fleetFindings(
  seen: readonly SeenDatabase[],
  config: FrameworkConfig,
  options: FleetOptions,
): readonly Finding[] {
  return [
    ...versionFindings(seen),
    ...sameDatabaseFindings(seen),
    ...connectionFindings(seen, options),
    ...slotLimitFindings(seen, config),
    ...inactiveSlotFindings(seen),
    ...clockFindings(seen, options),
  ];
}

function versionFindings(seen: readonly SeenDatabase[]): readonly Finding[] {
  const majors = Map.groupBy(seen, ({ facts }) => Math.floor(facts.version / 10_000));
  if (majors.size < 2) return [];
  const found = [...majors].map(([major, those]) => `PostgreSQL ${major}: ${wheres(those)}`).join('; ');
  return [finding('server-versions-mixed', 'all databases', found)];
}

function sameDatabaseFindings(seen: readonly SeenDatabase[]): readonly Finding[] {
  const primaries = seen.filter(({ database, facts }) => database.isPrimary && facts.database !== undefined);
  const groups = Map.groupBy(primaries, ({ facts }) => facts.database);
  return [...groups.values()]
    .filter((group) => group.length > 1)
    .map((group) =>
      finding('same-database-twice', wheres(group), 'these addresses lead to the same database'),
    );
}

/** The limits of connections, of the server, the database and the role, against those that the processes open. */
function connectionFindings(seen: readonly SeenDatabase[], { processes }: FleetOptions): readonly Finding[] {
  const servers = Map.groupBy(seen, ({ facts, database }) => facts.server ?? database.where);
  return [...servers.values()].flatMap((those) => {
    const [first] = those;
    if (first === undefined) return [];
    const { max_connections: max, superuser_reserved_connections: reserved } = first.facts.settings;
    const free = Number(max) - Number(reserved ?? 0);
    const needed = those.reduce((sum, each) => sum + neededBy(each, processes), 0);
    const beyond: Finding[] = [];
    if (needed > free) {
      const found = `${processes} × (pools + 5) are ${needed} connections, and the server has ${free}`;
      beyond.push(finding('connections-insufficient', wheres(those), found));
    }
    return [...beyond, ...ownLimitFindings(those, processes)];
  });
}

/** The limits of a role hold for all databases of its server together, and neither they nor those of a database for superusers. */
function ownLimitFindings(ofServer: readonly SeenDatabase[], processes: number): readonly Finding[] {
  const limited = ofServer.filter(({ facts }) => !facts.isSuperuser);
  const limits = [
    { what: 'role', of: ({ facts }: SeenDatabase) => facts.role, max: 'roleConnectionsMax' },
    {
      what: 'database',
      of: ({ facts, database }: SeenDatabase) => facts.database ?? database.where,
      max: 'databaseConnectionsMax',
    },
  ] as const;
  return limits.flatMap(({ what, of, max }) =>
    [...Map.groupBy(limited, of).values()].flatMap((those) => {
      const limit = Math.max(...those.map(({ facts }) => facts[max]));
      const needed = those.reduce((sum, each) => sum + neededBy(each, processes), 0);
      if (limit < 0 || needed <= limit) return [];
      const found = `${processes} × (pools + 5) are ${needed} connections, and the ${what} has ${limit}`;
      return [finding('connections-insufficient', wheres(those), found)];
    }),
  );
}

function neededBy({ database }: SeenDatabase, processes: number): number {
  return processes * (database.config.poolMax + besidePool);
}

/** Each relay that streams needs a slot and a sender per database; those that others left are taken. */
function slotLimitFindings(seen: readonly SeenDatabase[], config: FrameworkConfig): readonly Finding[] {
  const streams = streamCount(config);
  if (streams === 0) return [];
  const primaries = seen.filter(({ database }) => database.isPrimary);
  const servers = Map.groupBy(primaries, ({ facts, database }) => facts.server ?? database.where);
  return [...servers.values()].flatMap((those) => {
    const [first] = those;
    if (first === undefined) return [];
    const { max_replication_slots: slots, max_wal_senders: senders } = first.facts.settings;
    const needed = streams * those.length;
    if (needed <= Number(slots) && needed <= Number(senders)) return [];
    const found = `relays need ${needed}, max_replication_slots is ${slots}, max_wal_senders is ${senders}`;
    return [finding('replication-slots', wheres(those), found)];
  });
}

/** Slots belong to the server, so all of its databases may see the same one. */
function inactiveSlotFindings(seen: readonly SeenDatabase[]): readonly Finding[] {
  const slots = seen.flatMap(({ database, facts }) =>
    facts.slots.map((slot) => ({ ...slot, where: database.where, server: facts.server ?? database.where })),
  );
  const once = Map.groupBy(slots, ({ server, name }) => `${server} ${name}`);
  return [...once.values()].flatMap(([slot]) => {
    if (slot === undefined) return [];
    const found = `nobody uses the replication slot ${slot.name}, for which ${slot.retainedBytes} bytes are kept`;
    return [finding('slot-inactive', slot.where, found)];
  });
}

/** The clocks of the servers against that of this machine, and against each other. */
function clockFindings(seen: readonly SeenDatabase[], { clockSkewMaxMs }: FleetOptions): readonly Finding[] {
  const here = seen
    .filter(({ facts: { clock } }) => Math.abs(clock.aheadMs) - clock.uncertainMs > clockSkewMaxMs)
    .map(({ database, facts: { clock } }) => {
      const side = clock.aheadMs > 0 ? 'ahead of' : 'behind';
      return finding(
        'clock-skew',
        database.where,
        `its clock is ${roundedMs(clock.aheadMs)} ms ${side} this machine`,
      );
    });
  const sorted = seen.toSorted((one, other) => one.facts.clock.aheadMs - other.facts.clock.aheadMs);
  const [slowest, fastest] = [sorted[0], sorted.at(-1)];
  if (slowest === undefined || fastest === undefined) return here;
  const apartMs = fastest.facts.clock.aheadMs - slowest.facts.clock.aheadMs;
  const uncertainMs = fastest.facts.clock.uncertainMs + slowest.facts.clock.uncertainMs;
  if (apartMs - uncertainMs <= clockSkewMaxMs) return here;
  const found = `their clocks are ${roundedMs(apartMs)} ms apart`;
  return [...here, finding('clock-skew', wheres([slowest, fastest]), found)];
}

function roundedMs(ms: number): number {
  return Math.abs(Math.round(ms));
}

function wheres(those: readonly SeenDatabase[]): string {
  return those.map(({ database }) => database.where).join('; ');
}
