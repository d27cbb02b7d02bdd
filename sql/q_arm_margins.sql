-- Every margin of arm :arm_id with its row, in no order: percentiles sort them in memory.
SELECT row_id, margin FROM logits WHERE arm_id = :arm_id AND margin IS NOT NULL;
