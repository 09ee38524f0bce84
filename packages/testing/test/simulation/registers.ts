import {
  Action,
  type Clock,
  FrameworkAction,
  Model,
  ModelEvent,
  type New,
  type Principal,
  ShardIdentifier,
  ShardedId,
} from '@framework/core';
import * as z from 'zod';
import type { MemoryRepository } from '../../src/memory/index.js';

export const near: ShardIdentifier = ShardIdentifier.of(0, 0);
export const far: ShardIdentifier = ShardIdentifier.of(1, 0);

/** The initial mark of every register. */
export const blank = 'blank';

/** What handlers do with an event: to which register they write, how they fail before or after that, and how long they wait. */
const reactionSchema = z.object({
  writesTo: z.string().optional(),
  fails: z.enum(['before', 'after']).optional(),
  /** How often the handler fails. */
  times: z.number(),
  throws: z.enum(['error', 'text', 'nothing', 'hostile', 'hangs', 'hangs-deaf']),
  /** How long a call waits by the clock of its process, how many calls wait, and whether they wait on after they are abandoned. */
  waits: z.object({ ms: z.number(), times: z.number(), isDeaf: z.boolean() }).optional(),
  /** How often a batch with the event fails. */
  batchFails: z.number().optional(),
  /** How often a batch is done except for the event, which fails or waits for another batch. */
  left: z.object({ as: z.enum(['failed', 'waiting']), times: z.number() }).optional(),
});
export type Reaction = z.infer<typeof reactionSchema>;

/** A register, which holds the mark of the last write. */
export class Register extends Model<Register, ShardedId<Register>, 'OPEN'> {
  readonly mark: string;

  constructor(fields: New<Register>) {
    super(fields);
    this.mark = fields.mark;
  }

  static of(shard: ShardIdentifier): Register {
    const id = ShardedId.generate(Register, shard);
    return new Register({ id, state: 'OPEN', createdDate: new Date(0), mark: blank });
  }

  write(mark: string, reacts: Reaction): Register {
    return this.copy({ mark }, new RegisterWrittenEvent(this.id.value, this.mark, mark, reacts));
  }

  /** Writes an event that not every version of a handler wants. */
  stamp(mark: string, reacts: Reaction): Register {
    return this.copy({ mark }, new RegisterStampedEvent(this.id.value, this.mark, mark, reacts));
  }
}

/** A register has a new mark. */
export class RegisterWrittenEvent extends ModelEvent<Register> {
  static readonly payload = z.object({ before: z.string(), mark: z.string(), reaction: reactionSchema });

  constructor(
    registerId: string,
    readonly before: string,
    readonly mark: string,
    readonly reaction: Reaction,
  ) {
    super(registerId, Register);
  }
}

/** A register has a new mark, which was stamped. */
export class RegisterStampedEvent extends RegisterWrittenEvent {}

/**
 * One way of reading: one register, several at once, two in parallel, one for which the program does not wait but fails, one that an
 * earlier execution of the process has kept, or the first kept one with the same version number as the row.
 */
export interface Read {
  readonly kind: 'one' | 'several' | 'beside' | 'broken' | 'kept' | 'cached';
  readonly ids: readonly [string, string];
  readonly pauseMs: number;
}

/** What an action does: it reads registers, perhaps one of them twice, waits, may refuse, and writes over what it read. */
export interface Program {
  readonly program: number;
  readonly reads: readonly Read[];
  readonly writes: readonly { readonly id: string; readonly from: 'first' | 'last' }[];
  readonly refuses: boolean;
  readonly reaction: Reaction;
  readonly stamps: boolean;
  /** A text that the schema of the params rewrites. */
  readonly note: string;
}

const programParams: z.ZodType<Program> = z.looseObject({
  note: z.string().trim().toLowerCase(),
}) as z.ZodType as z.ZodType<Program>;

/** What the last attempt of a program read from a register. */
export interface Sight {
  readonly id: string;
  readonly version: number;
  readonly mark: string;
}

/** The records of all processes of a run; each run begins with new ones. */
export class Notes {
  readonly sights = new Map<number, Sight[]>();
  readonly failures = new Map<string, number>();
  /** Reads that returned something other than was requested. */
  readonly wrongReads: string[] = [];
  /** The programs that have used a kept model, each with the register's id. */
  readonly keptUses = new Set<string>();
  /** With which note each program was performed last. */
  readonly performed = new Map<number, string>();
  #markCount = 0;

  /** A number for the next mark, different each time, so that a write can be attributed to its attempt. */
  nextMark(): number {
    return this.#markCount++;
  }
}

class Refused extends Error {
  override readonly name = 'Refused';
}

const marks = z.object({ marks: z.array(z.string()) });

/** Runs a program. */
@FrameworkAction({ params: programParams, result: marks })
export class RunProgramAction extends Action<Program, z.infer<typeof marks>> {
  readonly #registers: MemoryRepository<Register>;
  readonly #notes: () => Notes;
  /** What executions of this process have read or staged, committed or not, as the cache of an application keeps it. */
  readonly #kept = new Map<string, Register[]>();

  constructor(clock: Clock, registers: MemoryRepository<Register>, notes: () => Notes) {
    super(clock);
    this.#registers = registers;
    this.#notes = notes;
  }

  protected async perform(_principal: Principal, program: Program): Promise<z.infer<typeof marks>> {
    const notes = this.#notes();
    const seen = new Map<string, Register[]>();
    const sights: Sight[] = [];
    const used = new Set<string>();
    notes.sights.set(program.program, sights);
    notes.performed.set(program.program, program.note);
    for (const read of program.reads) {
      if (read.pauseMs > 0) await this.clock.sleep(read.pauseMs);
      const kept = await this.#takeKept(program.program, read);
      for (const register of kept === undefined ? await this.#read(read) : [kept]) {
        const id = register.id.value;
        seen.set(id, [...(seen.get(id) ?? []), register]);
        if (kept !== undefined) used.add(id);
        else {
          this.#keep(register);
          sights.push({ id, version: register.version, mark: register.mark });
        }
      }
    }
    if (program.refuses) throw new Refused(`program ${program.program} refuses`);
    const written: string[] = [];
    for (const { id, from } of program.writes) {
      const register = seen.get(id)?.at(from === 'first' ? 0 : -1);
      if (register === undefined) continue;
      const mark = `${program.program}.${notes.nextMark()}`;
      const { stamps, reaction } = program;
      const staged = this.plan().update(
        stamps ? register.stamp(mark, reaction) : register.write(mark, reaction),
      );
      // Not again after it was used: each attempt could be stale because of the one before.
      if (!used.has(id)) this.#keep(staged);
      written.push(mark);
    }
    return { marks: written };
  }

  #keep(register: Register): void {
    const id = register.id.value;
    this.#kept.set(id, [...(this.#kept.get(id) ?? []), register]);
  }

  /** A program uses one kept model of each register: if it is stale, the next attempt reads. */
  async #takeKept(program: number, { kind, ids: [id] }: Read): Promise<Register | undefined> {
    if (kind !== 'kept' && kind !== 'cached') return undefined;
    const { keptUses } = this.#notes();
    const use = `${program} ${id}`;
    if (keptUses.has(use)) return undefined;
    keptUses.add(use);
    const { version } = kind === 'cached' ? await this.#readOne(id) : { version: undefined };
    const kept = this.#kept.get(id) ?? [];
    if (version === undefined) return kept.pop();
    const first = kept.findIndex((register) => register.version === version);
    return first < 0 ? undefined : kept.splice(first, 1)[0];
  }

  async #readOne(id: string): Promise<Register> {
    const register = await this.#registers.getById(id);
    if (register.id.value !== id) this.#notes().wrongReads.push(`${register.id.value} was read for ${id}`);
    return register;
  }

  async #read({ kind, ids: [one, other] }: Read): Promise<readonly Register[]> {
    const registers = this.#registers;
    if (kind === 'one' || kind === 'kept' || kind === 'cached') return [await this.#readOne(one)];
    if (kind === 'beside') return Promise.all([this.#readOne(one), this.#readOne(other)]);
    if (kind === 'broken') {
      registers.getById(one).catch(() => undefined);
      throw new Refused('the program does not wait for a read');
    }
    return registers.findAllByIds(one === other ? [one] : [one, other]);
  }
}

/** Writes to one register on behalf of a handler. */
@FrameworkAction()
export class EchoAction extends Action<{ readonly id: string; readonly of: string }> {
  readonly #registers: MemoryRepository<Register>;
  readonly #notes: () => Notes;

  constructor(clock: Clock, registers: MemoryRepository<Register>, notes: () => Notes) {
    super(clock);
    this.#registers = registers;
    this.#notes = notes;
  }

  protected async perform(
    _principal: Principal,
    params: { readonly id: string; readonly of: string },
  ): Promise<void> {
    const register = await this.#registers.getById(params.id);
    const mark = `echo of ${params.of}.${this.#notes().nextMark()}`;
    this.plan().update(register.write(mark, { times: 0, throws: 'error' }));
  }
}
