import * as z from 'zod';

import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidModelError } from '../errors/value-errors.js';
import type { Id, ShardedId } from '../id/id.js';
import type { ModelClass } from '../id/model-class.js';
import { ModelEvent } from './model-event.js';
import { Model } from './model.js';
import { assertSchema, encodeBySchema } from './round-trip.js';

/** The schemas of a model's fields, by name: `state`, and its own. */
export type ModelFields = Readonly<Record<string, z.ZodType>> & { readonly state: z.ZodType<string> };

/** The schemas of an event's fields, by name. */
export type EventFields = Readonly<Record<string, z.ZodType>>;

/** The values of a model's declared fields. */
export type DefinedFields<Fields extends ModelFields> = z.output<z.ZodObject<Fields>> & {
  readonly state: string;
};

declare const definedName: unique symbol;

/** The type of a model's name, by which the ids and events of defined models differ. */
export interface NamedModel<Name extends string> {
  /** Exists only in the type. */
  readonly [definedName]: Name;
}

/** A model whose fields are declared once: see {@link defineModel}. */
export abstract class DefinedModel<Name extends string, Fields extends { readonly state: string }>
  extends Model<unknown, ShardedId<unknown>, Fields['state']>
  implements NamedModel<Name>
{
  declare readonly [definedName]: Name;
  declare readonly id: ShardedId<this>;
  declare readonly events: readonly ModelEvent<NamedModel<Name>>[];

  /** Returns the model with some fields changed and the events of the change attached. */
  protected override copy(
    changes: Partial<Fields>,
    ...events: readonly ModelEvent<NamedModel<Name>>[]
  ): this {
    return super.copy(changes, ...events) as this;
  }

  /** Returns the model with events attached, for a new model. */
  protected override emit(...events: readonly ModelEvent<NamedModel<Name>>[]): this {
    return super.emit(...events) as this;
  }
}

/** The constructor argument of a defined model: that of any model, with the declared fields. */
export type NewDefined<Name extends string, Fields> = Readonly<Fields> & {
  readonly id: ShardedId<NamedModel<Name>>;
  readonly createdDate: Date;
  readonly version?: number;
  readonly updatedDate?: Date;
  readonly events?: readonly ModelEvent<NamedModel<Name>>[];
};

/** The base class that {@link defineModel} returns. */
export type DefinedModelClass<Name extends string, Fields extends ModelFields> = (abstract new (
  fields: NewDefined<Name, DefinedFields<Fields>>,
) => DefinedModel<Name, DefinedFields<Fields>> & Readonly<Omit<DefinedFields<Fields>, 'state'>>) & {
  readonly modelName: Name;
};

/** The fields that every model has, besides its state. */
const modelFields: ReadonlySet<string> = new Set(['id', 'version', 'createdDate', 'updatedDate', 'events']);
/** The fields that every event has. */
const eventFields: ReadonlySet<string> = new Set(['modelId', 'model']);

/**
 * Makes a base class of models from the schemas of their fields, so that each field is declared once.
 *
 * The id of such a model is a `ShardedId`. Its constructor checks every field, also of models that are read, and throws
 * InvalidModelError `invalid-model` with the name of the first one that does not fit. Schemas must work in both directions: codecs are
 * allowed, one-way transforms and defaults are not.
 *
 * @param name the durable name of the model
 * @param fields `state`, an enum of texts, and the fields of the model
 * @throws InvariantViolationError `invariant-violation` when a field is not a schema, or has a name that every model uses
 * @example examples/define-a-model.ts
 *
 * ```ts
 * class Order extends defineModel('Order', {
 *   state: z.enum(['OPEN', 'PAID']),
 *   customer: z.string().min(1),
 *   pieces: z.int().positive(),
 * }) {
 *   pay(paidWith: string): Order {
 *     return this.copy({ state: 'PAID' }, new OrderPaidEvent(this.id, { pieces: this.pieces, paidWith }));
 *   }
 * }
 * ```
 */
export function defineModel<const Name extends string, Fields extends ModelFields>(
  name: Name,
  fields: Fields,
): DefinedModelClass<Name, Fields> {
  assertFields(fields, modelFields, name);
  const schema = z.object(fields);
  const own = Object.keys(fields).filter((field) => field !== 'state');
  abstract class Defined extends DefinedModel<Name, DefinedFields<Fields>> {
    static readonly modelName = name;

    constructor(given: NewDefined<Name, DefinedFields<Fields>>) {
      super(given);
      const { error } = encodeBySchema(schema, given, name);
      if (error !== undefined) throw unfit(name, error);
      const values: Readonly<Record<string, unknown>> = given;
      Object.assign(this, Object.fromEntries(own.map((field) => [field, values[field]])));
    }
  }
  return Defined as unknown as DefinedModelClass<Name, Fields>;
}

/** The base class that {@link defineEvent} returns. */
export type DefinedEventClass<M, Fields extends EventFields> = (abstract new (
  id: Id<M>,
  fields: Readonly<z.output<z.ZodObject<Fields>>>,
) => ModelEvent<M> & Readonly<z.output<z.ZodObject<Fields>>>) & { readonly payload: z.ZodObject<Fields> };

/**
 * Makes a base class of events from the schemas of their fields, so that each field is declared once. The constructor takes the id of the
 * model, and the fields.
 *
 * @param model returns the class of the model, which may be defined later
 * @param fields as in a `payload`: the schemas must work in both directions
 * @throws InvariantViolationError `invariant-violation` when a field is not a schema, or has a name that every event uses
 * @example examples/define-a-model.ts
 *
 * ```ts
 * class OrderPaidEvent extends defineEvent(() => Order, { pieces: z.int(), paidWith: z.string() }) {}
 * ```
 */
export function defineEvent<M, Fields extends EventFields>(
  model: () => ModelClass<M>,
  fields: Fields,
): DefinedEventClass<M, Fields> {
  assertFields(fields, eventFields, 'an event');
  abstract class Defined extends ModelEvent<M> {
    static readonly payload = z.object(fields);

    constructor(id: Id<M>, values: Readonly<z.output<z.ZodObject<Fields>>>) {
      super(id.toString(), model());
      Object.assign(this, values);
    }
  }
  return Defined as unknown as DefinedEventClass<M, Fields>;
}

function assertFields(fields: EventFields, taken: ReadonlySet<string>, of: string): void {
  for (const [field, schema] of Object.entries(fields)) {
    if (taken.has(field))
      throw new InvariantViolationError(
        `The field ${field} of ${of} has a name that the framework uses: rename it`,
      );
    assertSchema(schema, `values of the field ${field} of ${of}`);
  }
}

function unfit(name: string, error: z.ZodError): InvalidModelError {
  const [{ path, message } = { path: [], message: 'unknown' }] = error.issues;
  return new InvalidModelError(`${[name, ...path].join('.')}: ${message}`);
}
