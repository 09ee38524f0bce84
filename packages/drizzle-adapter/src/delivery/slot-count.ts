/** Into how many slots the log is cut; the rows of `eventlog.slots`. */
export const slotCount = 16;
