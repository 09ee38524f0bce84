import {
  type Choices,
  type FaultKind,
  Simulation,
  type SimulationCall,
  type SimulationGiven,
  type SimulationOptions,
  type SimulationState,
  callOf,
} from '../../src/simulation/index.js';
import { handlersOf, versionCount } from './registers-handlers.js';
import {
  EchoAction,
  Notes,
  type Program,
  type Reaction,
  type Read,
  Register,
  type RegisterWrittenEvent,
  RunProgramAction,
  blank,
  far,
  near,
} from './registers.js';

interface Given extends SimulationGiven {
  readonly registers: readonly Register[];
}

/** Registers that random programs read and write, with handlers that write further marks and fail in every way. */
export function registersSimulation(
  options: Partial<SimulationOptions<Given>> & { readonly handles?: boolean } = {},
): Simulation<Given> {
  const { handles = true, ...others } = options;
  let notes = new Notes();
  let programCount = 0;
  let waits = false;
  const current = (): Notes => notes;
  return new Simulation<Given>({
    models: [Register],
    shards: [near, far],
    actions: ({ clock, repository }) => [
      new RunProgramAction(clock, repository(Register), current),
      new EchoAction(clock, repository(Register), current),
    ],
    ...(handles && {
      handlers: ({ version, clock }) => handlersOf(version, { clock, notes: current, waits }),
      versions: versionCount,
    }),
    given: (choices) => {
      notes = new Notes();
      programCount = 0;
      const registers = Array.from({ length: choices.between(2, 4) }, () =>
        Register.of(choices.chance(0.3) ? far : near),
      );
      waits = choices.chance(0.5);
      return { registers, models: registers };
    },
    call: (choices, { registers }) => programCall(choices, registers, programCount++, handles),
    check: (state) => checkRegisters(state, notes),
    // So short that the keys of clients have expired when dead letters are replayed.
    idempotency: { keyLifetimeMs: 20_000, commitsPerSweep: 1 },
    ...others,
  });
}

/** After these faults, acknowledged effects may be lost, but nothing else. */
export const withLosses: readonly FaultKind[] = [
  'lossy-failover',
  'failover',
  'kill',
  'slow',
  'answer-lost',
  'pause',
  'stop',
  'rollout',
];

const firstReadKinds = [
  ...Array.from({ length: 10 }, () => 'one' as const),
  'several',
  'beside',
  'broken',
] as const;
const readKinds = [...firstReadKinds, 'kept', 'kept', 'cached', 'cached', 'cached'] as const;

function programCall(
  choices: Choices,
  registers: readonly Register[],
  program: number,
  handles: boolean,
): SimulationCall {
  // Most reads and writes compete for one register.
  const id = (): string => (choices.chance(0.5) ? choices.pick(registers) : registers[0]!).id.value;
  const reads = Array.from({ length: choices.between(1, 3) }, (_unused, index): Read => {
    // An execution with a key must read the database first: where it does is where a repeat looks for the key.
    const kind = choices.pick(index === 0 ? firstReadKinds : readKinds);
    return { kind, ids: [id(), id()], pauseMs: choices.chance(0.3) ? choices.below(30) : 0 };
  });
  // Everything that a program writes is on one shard.
  const shard = choices.chance(0.2) ? far : near;
  const own = registers.filter((register) => register.id.resolveShardIdentifier() === shard);
  const written = new Map(
    Array.from({ length: choices.between(1, 2) }, () => {
      const target = choices.chance(0.7) ? (reads[0]?.ids[0] ?? id()) : id();
      return [target, choices.chance(0.5) ? ('last' as const) : ('first' as const)] as const;
    }),
  );
  const isHere = (target: string): boolean =>
    own.length === 0 || own.some((each) => each.id.value === target);
  const params: Program = {
    program,
    reads,
    writes: [...written].filter(([target]) => isHere(target)).map(([target, from]) => ({ id: target, from })),
    refuses: choices.chance(0.1),
    reaction: handles ? reactionOf(choices, id) : { times: 0, throws: 'error' },
    stamps: handles && choices.chance(0.3),
    note: choices.pick(['note', ' note', 'NOTE ']),
  };
  return callOf(RunProgramAction, params);
}

function reactionOf(choices: Choices, id: () => string): Reaction {
  const writesTo = choices.chance(0.5) ? id() : undefined;
  const isFailing = choices.chance(0.3);
  return {
    ...(writesTo !== undefined && { writesTo }),
    ...(isFailing && { fails: choices.chance(0.5) ? ('after' as const) : ('before' as const) }),
    times: isFailing ? choices.between(1, 6) : 0,
    throws: choices.pick(['error', 'text', 'nothing', 'hostile', 'hangs', 'hangs-deaf']),
    ...(choices.chance(0.1) && {
      waits: {
        ms: choices.pick([50, 300, 1_500, 2_500, 6_000]),
        times: choices.between(1, 2),
        isDeaf: choices.chance(0.3),
      },
    }),
    ...(choices.chance(0.1) && { batchFails: choices.between(1, 3) }),
    ...(choices.chance(0.15) && {
      left: { as: choices.pick(['failed', 'waiting']), times: choices.between(1, 6) },
    }),
  };
}

/**
 * Checks that the marks follow one another: nothing was overwritten without being read, and no answer contains a mark that does
 * not exist.
 */
function checkRegisters({ given, events, calls, hasLosses }: SimulationState<Given>, notes: Notes): void {
  const faults = [...notes.wrongReads];
  const states = new Set<string>();
  const marks = new Set<string>();
  for (const [index, register] of given.registers.entries()) {
    states.add(`${register.id.value} 1 ${blank}`);
    let before = blank;
    const own = events.filter(({ modelId }) => modelId === register.id.value);
    for (const { payload, modelVersion } of own) {
      const written = payload as Pick<RegisterWrittenEvent, 'before' | 'mark'>;
      if (written.before !== before)
        faults.push(
          `register ${index}: ${written.mark} was written over ${written.before}, but it held ${before}`,
        );
      before = written.mark;
      marks.add(written.mark);
      states.add(`${register.id.value} ${modelVersion} ${written.mark}`);
    }
  }
  for (const { actionName, actionParams } of events) {
    const { program, note } = actionParams as Program;
    const performed = notes.performed.get(program);
    if (actionName === 'RunProgramAction' && performed !== undefined && performed !== note)
      faults.push(
        `program ${program} was performed with the note '${performed}', but its log says '${note}'`,
      );
  }
  if (!hasLosses) {
    for (const { number, outcome, key, results, call } of calls) {
      if (new Set(results.map((result) => JSON.stringify(result))).size > 1)
        faults.push(`call ${number}: its copies were answered differently`);
      for (const result of results)
        for (const mark of (result as { readonly marks: readonly string[] }).marks)
          if (!marks.has(mark))
            faults.push(`call ${number} was answered with ${mark}, which was never committed`);
      // A call with a key may have had several executions, each with reads of its own.
      if (outcome !== 'ok' || key !== undefined) continue;
      for (const { id, version, mark } of notes.sights.get((call.params as Program).program) ?? [])
        if (!states.has(`${id} ${version} ${mark}`))
          faults.push(
            `call ${number} was ok and saw ${mark} in version ${version}, which was never committed`,
          );
    }
  }
  if (faults.length > 0) throw new Error(faults.join('; '));
}
