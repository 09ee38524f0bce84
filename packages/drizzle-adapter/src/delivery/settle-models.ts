/**
 * Says anew from when on the models of changed parked events may be tried, within the same statement.
 *
 * For a `select` from the rows that a `with … returning` gives: slot, handler, model_name, model_id.
 */
export const settleModels = `eventlog.settle_parked_models(
  array_agg(slot), array_agg(handler), array_agg(model_name), array_agg(model_id))`;
